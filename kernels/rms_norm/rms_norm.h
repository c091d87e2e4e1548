#pragma once

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// RMS normalisation over the last dimension:
//   out[t, c] = x[t, c] / sqrt(mean_c(x[t, :]^2) + epsilon) * weight[c]
// The sum of squares uses the 16 virtual lanes of linear.h. `out` may alias `x` exactly; partial overlap is
// an error. A per-head norm is a norm over tokens * heads rows.
struct RmsNormArgs {
  View2<const float> x;       // [tokens, channels]
  View1<const float> weight;  // [channels]
  View2<float> out;           // [tokens, channels]
  float epsilon = 0;          // > 0
};

absl::Status ValidateRmsNorm(const RmsNormArgs& args);

namespace reference {
absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream);
}
namespace cpu {
absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream);
}
namespace cuda {
absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
