#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

enum class RopePairing {
  kInterleaved,  // pairs (2i, 2i+1): the target's q_pe and k_pe
  kHalfSplit,    // pairs (i, i + dim/2): DFlash
};

// Rotates, in place: for pair (a, b) with c = cosine[position, i], s = sine[position, i]:
//   a' = a*c - b*s,  b' = b*c + a*s   (each as fma(a, c, -(b*s)) and fma(b, c, a*s)).
// The vector of (row t, head h) starts at x + t*row_stride + h*head_stride and has 2 * cosine.columns
// elements. With `from` the unrotated vectors lie there, with strides of their own, and x only receives; the
// two do not overlap. On CUDA a vector whose position lies outside the tables stays as it is.
struct RopeArgs {
  float* x = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  int64_t heads = 0;
  View1<const int32_t> position;  // [tokens], each in [0, cosine.rows)
  View2<const float> cosine;      // [positions, dim/2]
  View2<const float> sine;        // [positions, dim/2]
  RopePairing pairing = RopePairing::kInterleaved;
  const float* from = nullptr;  // null: x itself
  int64_t from_row_stride = 0;
  int64_t from_head_stride = 0;
};

// The vector before its rotation.
inline const float* RopeSource(const RopeArgs& args, int64_t row, int64_t head) {
  return args.from == nullptr ? args.x + row * args.row_stride + head * args.head_stride
                              : args.from + row * args.from_row_stride + head * args.from_head_stride;
}

absl::Status ValidateRope(const RopeArgs& args);
// What the host can check of arrays on a device.
absl::Status ValidateRopeShapes(const RopeArgs& args);

namespace reference {
absl::Status Rope(const RopeArgs& args, StreamView stream);
}
namespace cpu {
absl::Status Rope(const RopeArgs& args, StreamView stream);
}
namespace cuda {
absl::Status Rope(const RopeArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
