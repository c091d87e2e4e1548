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

// into[t, :] += from[t, :], then out = the norm of `into`: the bits of add_rows and rms_norm in one call; and
// of copy_rows, where the sum is wanted in a second place. No two of the four overlap.
struct AddRmsNormArgs {
  View2<const float> from;    // [tokens, channels]
  View2<float> into;          // [tokens, channels]
  View1<const float> weight;  // [channels]
  View2<float> out;           // [tokens, channels]
  float epsilon = 0;          // > 0
  View2<float> copy = {};     // [tokens, channels] what `into` became, or columns 0: not wanted
};

absl::Status ValidateAddRmsNorm(const AddRmsNormArgs& args);
// The part after the sum.
RmsNormArgs NormOf(const AddRmsNormArgs& args);

namespace reference {
absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream);
absl::Status AddRmsNorm(const AddRmsNormArgs& args, StreamView stream);
}  // namespace reference
namespace cpu {
absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream);
absl::Status AddRmsNorm(const AddRmsNormArgs& args, StreamView stream);
}  // namespace cpu
namespace cuda {
absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream);
absl::Status AddRmsNorm(const AddRmsNormArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
