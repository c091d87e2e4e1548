#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/linear/linear.h"

namespace arborist::kernels {

// One SwiGLU: down(silu(gate x) * (up x)).
struct ExpertWeights {
  WeightView gate;  // [width, hidden]
  WeightView up;    // [width, hidden]
  WeightView down;  // [hidden, width]
};

// out[t, :] = sum over the row's experts in ascending id of weight * expert(x[t]), plus shared(x[t]).
// Row parallel over the expert width (and the shared width): `down` is cut into the segments of linear.h;
// each segment adds the experts in ascending id by fma(weight, partial, sum) from 0, then the shared expert's
// partial by an addition; then the segments are joined by the balanced tree. gate and up are column parallel:
// a rank holds the rows of its segments. Rows of one expert are computed together (the expert's weights are
// read once a step).
struct MoeExpertsArgs {
  View2<const float> x;                    // [tokens, hidden]
  View2<const int32_t> expert;             // [tokens, top_k] ascending ids
  View2<const float> weight;               // [tokens, top_k]
  std::span<const ExpertWeights> experts;  // [experts], this rank's segments of each
  const ExpertWeights* shared = nullptr;   // may be null
  int64_t full_width = 0;                  // expert width over all ranks
  int64_t full_shared_width = 0;
  int first_segment = 0;
  int segment_count = kRowParallelSegments;
  View2<float> out;          // [tokens, hidden]
  View1<std::byte> scratch;  // >= MoeExpertsScratchBytes(...), 64-byte aligned
};

// For up to `tokens` rows.
size_t MoeExpertsScratchBytes(int64_t tokens, int64_t hidden, int64_t experts, int top_k, int64_t width,
                              int64_t shared_width);

absl::Status ValidateMoeExperts(const MoeExpertsArgs& args);

namespace reference {
absl::Status MoeExperts(const MoeExpertsArgs& args, StreamView stream);
}
namespace cpu {
absl::Status MoeExperts(const MoeExpertsArgs& args, StreamView stream);
}
namespace cuda {
absl::Status MoeExperts(const MoeExpertsArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
