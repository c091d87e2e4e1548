#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Log-probabilities of some tokens of each row, under the logits as they are:
//   log_prob[r, 0] = that of forced[r] where it is >= 0 (the next token of a prompt), else of chosen[r];
//   log_prob[r, 1 + i] = that of top[r, i] for i < top_count[r].
// 0 where a token is negative, for i >= top_count[r], and in a row with a logit that is not finite (whoever
// samples the row reports it).
//
// Each is (logits[token] - max) - log(sum_v exp(logits[v] - max)), in the arithmetic and order of
// sample_target's log_prob of the same backend: bit-equal for the same token and logits. On CUDA that leaves
// one exception, a zero result that may have the other sign: greedy sample_target writes +0 where the
// largest logit is -0 and has all the mass.
struct TokenLogProbArgs {
  View2<const float> logits;       // [rows, vocabulary]
  View1<const TokenId> chosen;     // [rows], each < vocabulary
  View1<const TokenId> forced;     // [rows], each < vocabulary; or empty: nothing is forced
  View2<const TokenId> top;        // [rows, any], each < vocabulary where it counts; or without columns
  View1<const int32_t> top_count;  // [rows], each 0..top.columns; empty where top has no columns
  View2<float> log_prob;           // [rows, 1 + top.columns]
  View1<std::byte> scratch;        // CUDA only: >= the bytes below, 64-byte aligned
};

size_t TokenLogProbCudaScratchBytes(int64_t rows, int64_t vocabulary);

absl::Status ValidateTokenLogProbShapes(const TokenLogProbArgs& args);
// Shapes and contents: host memory only. CUDA writes 0 for a token beyond the vocabulary, and takes top_count
// as within its range.
absl::Status ValidateTokenLogProb(const TokenLogProbArgs& args);

namespace reference {
absl::Status TokenLogProb(const TokenLogProbArgs& args, StreamView stream);
}
namespace cpu {
absl::Status TokenLogProb(const TokenLogProbArgs& args, StreamView stream);
}
namespace cuda {
absl::Status TokenLogProb(const TokenLogProbArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
