#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Candidates of each drafted depth (DESIGN 1). With noise off x = logits; with noise on (coupled drafting)
//   x[d, v] = (logits[d, v] - max_v logits[d, :]) / temperature
//             + gumbel(seed, sample_index, first_position + d, v)
// which ranks as logits / temperature + gumbel does and never overflows. Candidates are the K largest x, ties
// to the lower id, in that order; with z = (x - max_v x) * beta their edges are
//   log_prob[d, i] = z - log(sum_v exp(z_v)) over the full vocabulary, held in [-1e30, 0] so that the
// builder takes them; the sum in 16 lanes (lane l adds v = l, l+16, ... in ascending order) joined as in
// linear.h, exp and log from exact_math.
inline constexpr int kTopKLogProbMaxK = 64;

struct TopKLogProbArgs {
  View2<const float> logits;  // [depths, vocabulary], finite
  float beta = 1;             // > 0
  float temperature = 0;      // 0 = no noise; else > 0
  uint64_t seed = 0;
  uint32_t sample_index = 0;
  int32_t first_position = 0;  // 0-based index in prompt + output of the token that depth 1 (row 0) proposes
  int k = 1;                   // 1..min(64, vocabulary)
  View2<TokenId> token;        // [depths, k]
  View2<float> log_prob;       // [depths, k], non-increasing, <= 0
  View2<float> scratch;        // [depths, vocabulary]
};

// Non-finite logits are Internal (the draft model is broken), with depth and id, when the kernel runs.
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
