#include "drafter/propose_args.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace arborist::drafter {

absl::Status CheckProposeArgs(const ProposeArgs& args, int32_t length) {
  if (length < 1) {
    return absl::FailedPreconditionError("the context has 0 tokens, expected at least the root");
  }
  if (args.nodes < 0 || args.nodes > kMaxTreeBudget) {
    return absl::InvalidArgumentError(absl::StrCat("nodes=", args.nodes, ", expected 0 to ", kMaxTreeBudget));
  }
  if (!(args.temperature >= 0 && std::isfinite(args.temperature))) {
    return absl::InvalidArgumentError(
        absl::StrCat("temperature=", args.temperature, ", expected a finite number >= 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckAppend(int32_t first_position, std::span<const TokenId> tokens, int32_t length,
                         int64_t vocabulary) {
  if (first_position != length) {
    return absl::FailedPreconditionError(
        absl::StrCat("first_position=", first_position, ", expected ", length, ", the next position"));
  }
  // One position stays free for the bonus token.
  if (tokens.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max() - length)) {
    return absl::OutOfRangeError(
        absl::StrCat(tokens.size(), " more tokens after ", length, ", expected positions to fit 31 bits"));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (Raw(tokens[i]) < 0 || Raw(tokens[i]) >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("token_ids[", i, "]=", Raw(tokens[i]), ", expected an id in [0, ", vocabulary, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::drafter
