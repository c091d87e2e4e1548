#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/dtype.h"
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
// read once a step). CUDA sums a rank's segments as one product; the order of the experts is the same.
struct MoeExpertsArgs {
  View2<const float> x;         // [tokens, hidden]
  View2<const int32_t> expert;  // [tokens, top_k] ascending ids
  View2<const float> weight;    // [tokens, top_k]
  // [experts], this rank's segments of each. The array lies in the backend's memory too (on CUDA it is filled
  // once, at load), so what the host must know of it stands beside it. An expert that no row chooses may be
  // absent (null data).
  View1<const ExpertWeights> experts;
  DType weight_dtype = DType::kBF16;  // of all experts' matrices, the shared one's too
  int64_t width = 0;                  // of the experts on this rank: rows of gate and up, columns of down
  // Read by the host during the call; its data is the backend's. May be null.
  const ExpertWeights* shared = nullptr;
  int64_t full_width = 0;  // expert width over all ranks
  int64_t full_shared_width = 0;
  int first_segment = 0;
  int segment_count = kRowParallelSegments;
  // In the backend's memory, null = all rows. Rows at and beyond *live_rows are padding: what they choose is
  // not read and their rows of out are zero.
  const int32_t* live_rows = nullptr;
  View2<float> out;          // [tokens, hidden]
  View1<std::byte> scratch;  // >= MoeExpertsScratchBytes(...) or the CUDA one, 64-byte aligned
};

// For up to `tokens` rows.
size_t MoeExpertsScratchBytes(int64_t tokens, int64_t hidden, int64_t experts, int top_k, int64_t width,
                              int64_t shared_width);
size_t MoeExpertsCudaScratchBytes(int64_t tokens, int top_k, int64_t width, int64_t shared_width);

// How many rows are not padding, where the host may read that.
int64_t LiveRows(const MoeExpertsArgs& args);

// What the host knows; every backend. The size of the scratch is each backend's own check.
absl::Status ValidateMoeExpertsShapes(const MoeExpertsArgs& args);
// Shapes, the contents of the arrays, and MoeExpertsScratchBytes: where the host may read the arrays.
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
