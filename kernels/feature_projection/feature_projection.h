#pragma once

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// DFlash features: out[t, :] = bf16(rms_norm(weight * taps[t, :]) * norm_weight). dot and sum as in linear.h.
struct FeatureProjectionArgs {
  View2<const float> taps;         // [tokens, taps * hidden]: layer outputs, in the order of target_layer_ids
  WeightView weight;               // fc [hidden, taps * hidden]
  View1<const float> norm_weight;  // hidden_norm [hidden]
  float epsilon = 0;               // > 0
  View2<float> scratch;            // [tokens, hidden]
  View2<BFloat16> out;             // [tokens, hidden]
};

absl::Status ValidateFeatureProjection(const FeatureProjectionArgs& args);

namespace reference {
absl::Status FeatureProjection(const FeatureProjectionArgs& args, StreamView stream);
}
namespace cpu {
absl::Status FeatureProjection(const FeatureProjectionArgs& args, StreamView stream);
}
namespace cuda {
absl::Status FeatureProjection(const FeatureProjectionArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
