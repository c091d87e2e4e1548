#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Candidates of each drafted depth of many streams (DESIGN 1). Row s * depths + d of the logits is what
// stream s drafts at depth d + 1. With noise off x = logits; with noise on (coupled drafting)
//   x[d, v] = (logits[d, v] - max_v logits[d, :]) / temperature
//             + gumbel(seed, sample_index, first_position + d, v)
// which ranks as logits / temperature + gumbel does and never overflows. Candidates are the K largest x, ties
// to the lower id, in that order; with z = (x - max_v x) * beta their edges are
//   log_prob[d, i] = z - log(sum_v exp(z_v)) over the full vocabulary, held in [-1e30, 0] so that the
// builder takes them; the sum in 16 lanes (lane l adds v = l, l+16, ... in ascending order) joined as in
// linear.h, exp and log from exact_math.
//
// CUDA: the same ids, bit for bit, given the same logits. Its sum has an order of its own, since 16 lanes
// over 163,840 ids would take longer than reading them: tiles of 1024 ids, inside a tile 32 lanes that each
// add their ids in a fixed order and join in a fixed tree, tiles joined in a fixed order, with the device's
// own exp2 and, with noise on, the noise by the device's own logarithm. So a row's bits depend on the row
// alone, and log_prob is within 2e-5 + 2e-6 of its size + 1e-9 of the vocabulary of the oracle's (whose lanes
// round for each id); at most 2^19 ids.
inline constexpr int kTopKLogProbMaxK = 64;

// What one stream asks for. The first `depths` rows of the stream get k candidates each; nothing is written
// for the others, nor beyond column k. k or depths 0 is a padding stream.
struct TopKParams {
  float temperature = 0;  // 0 = no noise; else > 0
  float beta = 1;         // > 0
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  int32_t first_position = 0;  // 0-based index in prompt + output of the token that depth 1 (row 0) proposes
  int32_t depths = 0;          // 0..rows of the stream
  int32_t k = 0;               // 0..min(64, vocabulary, columns of the outputs)
};

struct TopKLogProbArgs {
  LogitsView logits;               // [streams * depths, vocabulary], finite
  View1<const TopKParams> params;  // [streams], in the backend's memory
  View2<TokenId> token;            // [streams * depths, max_k]
  View2<float> log_prob;           // [streams * depths, max_k], non-increasing, <= 0
  View1<std::byte> scratch;        // >= the bytes below, 64-byte aligned
};

size_t TopKLogProbScratchBytes(int64_t rows, int64_t vocabulary);
size_t TopKLogProbCudaScratchBytes(int64_t rows, int64_t vocabulary);

// Non-finite logits are Internal (the draft model is broken), with row and id, when the kernel runs. CUDA
// writes NaN as log_prob of the whole row instead, which the tree builder reports; the tokens are 0 then.
absl::Status ValidateTopKLogProbShapes(const TopKLogProbArgs& args);
// Shapes, and the params: host memory only.
absl::Status ValidateTopKLogProb(const TopKLogProbArgs& args);

namespace reference {
absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream);
}
namespace cpu {
absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream);
}
namespace cuda {
absl::Status TopKLogProb(const TopKLogProbArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
