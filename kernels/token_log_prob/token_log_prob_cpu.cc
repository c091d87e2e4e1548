#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/sample_target/row_log_prob.h"
#include "kernels/token_log_prob/log_prob_tokens.h"
#include "kernels/token_log_prob/token_log_prob.h"
#include "kernels/vocabulary_row/vocabulary_row.h"

namespace arborist::kernels::cpu {
namespace {

void FillRow(const TokenLogProbArgs& args, int64_t r) {
  const int64_t columns = args.log_prob.columns;
  float* out = args.log_prob.row(r);
  std::fill_n(out, columns, 0.0f);
  int64_t wanted = 0;
  for (int64_t column = 0; column < columns; ++column) {
    wanted += Raw(LogProbToken(args, r, column)) >= 0 ? 1 : 0;
  }
  if (wanted == 0) {
    return;  // nobody reads the row
  }
  const float* logits = args.logits.row(r);
  const RowPeak peak = PeakOfRow(logits, args.logits.columns);
  if (!peak.finite) {
    return;
  }
  const float log_sum = RowLogSum(logits, peak, args.logits.columns);
  for (int64_t column = 0; column < columns; ++column) {
    const TokenId token = LogProbToken(args, r, column);
    if (Raw(token) >= 0) {
      out[column] = LogProbFrom(logits[Raw(token)], peak.max, log_sum);
    }
  }
}

}  // namespace

absl::Status TokenLogProb(const TokenLogProbArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTokenLogProb(args));
  stream.threads->ParallelFor(args.logits.rows, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      FillRow(args, r);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
