#include "kernels/tree_build/tree_build.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status ValidateShapes(const TreeBuildArgs& args) {
  if (args.budget < 0 || args.budget > kTreeBuildMaxBudget) {
    return FieldError("budget", absl::StrCat(args.budget), absl::StrCat("0..", kTreeBuildMaxBudget));
  }
  if (args.token.rows < 0 || args.token.rows > kTreeBuildMaxDepth) {
    return FieldError("token.rows", absl::StrCat(args.token.rows), absl::StrCat("0..", kTreeBuildMaxDepth));
  }
  if (args.log_prob.rows != args.token.rows) {
    return FieldError("log_prob.rows", absl::StrCat(args.log_prob.rows),
                      absl::StrCat("token.rows=", args.token.rows));
  }
  if (args.token.rows > 0 && args.token.columns < 1) {
    return FieldError("token.columns", absl::StrCat(args.token.columns), "at least 1 candidate a depth");
  }
  if (args.log_prob.columns != args.token.columns) {
    return FieldError("log_prob.columns", absl::StrCat(args.log_prob.columns),
                      absl::StrCat("token.columns=", args.token.columns));
  }
  for (int64_t size : {args.out_token.size, args.out_parent.size, args.out_score.size}) {
    if (size < args.budget + 1) {
      return FieldError("out.size", absl::StrCat(size),
                        absl::StrCat("at least budget + 1 = ", args.budget + 1));
    }
  }
  if (args.out_nodes == nullptr) {
    return FieldError("out_nodes", "null", "an address");
  }
  return absl::OkStatus();
}

absl::Status ValidateDepth(const TreeBuildArgs& args, int64_t depth) {
  const float* log_prob = args.log_prob.row(depth);
  const TokenId* token = args.token.row(depth);
  for (int64_t rank = 0; rank < args.token.columns; ++rank) {
    const float value = log_prob[rank];
    if (!std::isfinite(value) || value > 0) {
      return FieldError(absl::StrCat("log_prob[", depth, "][", rank, "]"), absl::StrCat(value),
                        "a finite value <= 0");
    }
    if (rank > 0 && value > log_prob[rank - 1]) {
      return FieldError(absl::StrCat("log_prob[", depth, "][", rank, "]"), absl::StrCat(value),
                        absl::StrCat("at most the rank before, ", log_prob[rank - 1]));
    }
    bool repeated = false;
    for (int64_t earlier = 0; earlier < rank; ++earlier) {
      repeated |= token[earlier] == token[rank];
    }
    if (repeated) {
      return FieldError(absl::StrCat("token[", depth, "][", rank, "]"), absl::StrCat(Raw(token[rank])),
                        "a token that no earlier rank of this depth has");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTreeBuild(const TreeBuildArgs& args) {
  RETURN_IF_ERROR(ValidateShapes(args));
  for (int64_t depth = 0; depth < args.token.rows; ++depth) {
    RETURN_IF_ERROR(ValidateDepth(args, depth));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
