#pragma once

#include "kernels/token_log_prob/token_log_prob.h"

namespace arborist::kernels {

// Whose log-probability stands in column `column` of row `row`; negative: nobody's. constexpr: device code
// too.
constexpr TokenId LogProbToken(const TokenLogProbArgs& args, int64_t row, int64_t column) {
  if (column > 0) {
    return column <= args.top_count[row] ? args.top.row(row)[column - 1] : TokenId{-1};
  }
  const bool is_forced = args.forced.size > 0 && Raw(args.forced[row]) >= 0;
  return is_forced ? args.forced[row] : args.chosen[row];
}

}  // namespace arborist::kernels
