#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/testing/random_tensor.h"
#include "kernels/token_log_prob/token_log_prob.h"

namespace arborist::kernels {

// Rows and the tokens asked for in host memory, for tests.
struct LogProbCase {
  int64_t vocabulary = 0;
  int64_t top_columns = 0;
  std::vector<float> logits;
  std::vector<TokenId> chosen, forced, top;
  std::vector<int32_t> top_count;

  int64_t rows() const { return static_cast<int64_t>(chosen.size()); }
  int64_t columns() const { return 1 + top_columns; }
  TokenLogProbArgs Args(float* log_prob) const {
    return {.logits = {logits.data(), rows(), vocabulary, vocabulary},
            .chosen = {chosen.data(), rows()},
            .forced = {forced.data(), static_cast<int64_t>(forced.size())},
            .top = {top.data(), top_columns == 0 ? 0 : rows(), top_columns, top_columns},
            .top_count = {top_count.data(), static_cast<int64_t>(top_count.size())},
            .log_prob = {log_prob, rows(), columns(), columns()},
            .scratch = {}};
  }
  LogProbCase Alone(int64_t r) const {
    const auto part = [r](const auto& all, int64_t size) {
      return std::decay_t<decltype(all)>(all.begin() + r * size, all.begin() + (r + 1) * size);
    };
    return {.vocabulary = vocabulary,
            .top_columns = top_columns,
            .logits = part(logits, vocabulary),
            .chosen = part(chosen, 1),
            .forced = forced.empty() ? forced : part(forced, 1),
            .top = part(top, top_columns),
            .top_count = top_count.empty() ? top_count : part(top_count, 1)};
  }
};

// Entries of `top` beyond a row's count are nonsense: nobody reads them.
inline LogProbCase DrawLogProbCase(testing::Random& random, int64_t rows, int64_t vocabulary,
                                   int64_t top_columns, bool with_forced) {
  LogProbCase c = {.vocabulary = vocabulary,
                   .top_columns = top_columns,
                   .logits = random.Normals(rows * vocabulary, 5),
                   .chosen = {},
                   .forced = {},
                   .top = {},
                   .top_count = {}};
  const auto token = [&] { return TokenId{static_cast<int32_t>(random.Uniform(0, vocabulary - 1))}; };
  for (int64_t r = 0; r < rows; ++r) {
    c.chosen.push_back(random.Uniform(0, 5) == 0 ? TokenId{-1} : token());
    if (with_forced) {
      c.forced.push_back(random.Uniform(0, 1) == 0 ? TokenId{-1} : token());
    }
    if (top_columns > 0) {
      c.top_count.push_back(static_cast<int32_t>(random.Uniform(0, top_columns)));
      for (int64_t i = 0; i < top_columns; ++i) {
        c.top.push_back(i < c.top_count[r] ? token() : TokenId{0x7fffffff});
      }
    }
  }
  return c;
}

}  // namespace arborist::kernels
