#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// Sampling of one sequence. The order of operations is part of the contract (DESIGN 3): temperature, top-k,
// top-p, min-p, argmax; ties to the lowest id.
struct SamplingParams {
  float temperature = 0;  // 0 = greedy (the rest is ignored); else > 0 and finite
  int32_t top_k = 0;      // 0 = off; exactly k are kept, lowest ids at the threshold
  // (0, 1]; 1 = off. Smallest set by (logit, lower id) of the top-k set with mass >= p * mass of the top-k
  // set.
  float top_p = 1;
  float min_p = 0;  // [0, 1]; 0 = off. Keeps p >= min_p * max p of the temperature-scaled full softmax
  uint64_t seed = 0;
  uint32_t sample_index = 0;
};

// InvalidArgument names the field, its value and the expected range. The owner of a request calls it once, at
// the edge: inside a step one bad request would fail its neighbours.
absl::Status ValidateSamplingParams(const SamplingParams& params);

// chosen[i] = argmax_v( y[i, v] + gumbel(seed, sample_index, position[i], v) ) over the truncated set, where
// y = (logits - max_v logits) / T: the same token as with logits / T, and no temperature overflows.
// position[i] is the 0-based index in prompt + output of the token being chosen: the row's own position + 1.
// Thresholds by radix passes with integer counts and 64-bit fixed-point mass (sampling_rule.h): free of
// order, tiling and rank count.
//
// log_prob[i] = (logits[chosen] - max) - log(sum_v exp(logits[v] - max)), the sum in 16 lanes as in linear.h
// (lane l adds v = l, l+16, ... in ascending order), exp and log from exact_math.
//
// CUDA: the same ids, bit for bit, given the same logits. Its sum of log_prob has an order of its own, since
// 16 lanes over 163,840 ids would take longer than reading them: chunks of a fixed number of ids, inside a
// chunk a fixed set of threads that each add their ids in ascending order, joined in a fixed tree, chunks in
// ascending order, with the device's own exp2. A row's bits depend on the row alone; log_prob is
// within 2e-5 + 2e-6 of its size + 1e-9 of the vocabulary of the oracle's (whose lanes round for each id).
//
// Bias, allowed-token mask and penalties come before `temperature`: logit_controls writes the row that this
// kernel then reads, with log_prob empty, since that is of the raw row (token_log_prob).
struct SampleTargetArgs {
  View2<const float> logits;           // [rows, vocabulary]
  View1<const int32_t> position;       // [rows]
  View1<const int32_t> params_index;   // [rows] into params; 0 in a padding row
  View1<const SamplingParams> params;  // in the backend's memory
  View1<TokenId> chosen;               // [rows]
  View1<float> log_prob;               // [rows] of the chosen token, of raw logits; may be empty
  View1<std::byte> scratch;            // >= the bytes below, 64-byte aligned
  // [rows] or empty, CUDA: [rows]. 1 where a logit of the row is not finite (CUDA: or its params_index is out
  // of range); chosen and log_prob are 0 there. Other rows are as if the broken ones were not there.
  View1<int32_t> error{};
};

size_t SampleTargetScratchBytes(int64_t vocabulary, int threads);
size_t SampleTargetCudaScratchBytes(int64_t rows, int64_t vocabulary);

absl::Status ValidateSampleTargetShapes(const SampleTargetArgs& args);
// Shapes and contents: host memory only. Non-finite logits are Internal (the model is broken, not the
// request), with row and id, when the kernel runs; CUDA has only the flag.
absl::Status ValidateSampleTarget(const SampleTargetArgs& args);

namespace reference {
// Full sort in plain loops; integer and exp/log steps are the same, so ids are equal.
absl::Status SampleTarget(const SampleTargetArgs& args, StreamView stream);
}  // namespace reference
namespace cpu {
absl::Status SampleTarget(const SampleTargetArgs& args, StreamView stream);
}
namespace cuda {
absl::Status SampleTarget(const SampleTargetArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
