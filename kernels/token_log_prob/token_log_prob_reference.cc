#include <algorithm>
#include <cmath>

#include "common/base/status_macros.h"
#include "kernels/sample_target/row_log_prob.h"
#include "kernels/token_log_prob/log_prob_tokens.h"
#include "kernels/token_log_prob/token_log_prob.h"

namespace arborist::kernels::reference {

absl::Status TokenLogProb(const TokenLogProbArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTokenLogProb(args));
  const int64_t vocabulary = args.logits.columns;
  for (int64_t r = 0; r < args.logits.rows; ++r) {
    const float* logits = args.logits.row(r);
    const bool finite = std::all_of(logits, logits + vocabulary, [](float x) { return std::isfinite(x); });
    for (int64_t column = 0; column < args.log_prob.columns; ++column) {
      const TokenId token = LogProbToken(args, r, column);
      args.log_prob.row(r)[column] = finite && Raw(token) >= 0 ? RowLogProb(logits, vocabulary, token) : 0.0f;
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
