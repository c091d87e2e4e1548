#include "common/base/status_macros.h"
#include "kernels/feature_projection/feature_projection.h"
#include "kernels/linear/linear.h"
#include "kernels/rms_norm/rms_norm.h"

namespace arborist::kernels::cpu {

absl::Status FeatureProjection(const FeatureProjectionArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateFeatureProjection(args));
  const View2<float> fused{args.scratch.data, args.taps.rows, args.scratch.columns, args.scratch.row_stride};
  const View2<const float> fused_in{fused.data, fused.rows, fused.columns, fused.row_stride};
  RETURN_IF_ERROR(Linear({args.taps, args.weight, fused}, stream));
  RETURN_IF_ERROR(RmsNorm({fused_in, args.norm_weight, fused, args.epsilon}, stream));
  for (int64_t t = 0; t < fused.rows; ++t) {
    for (int64_t c = 0; c < fused.columns; ++c) {
      args.out.row(t)[c] = ToBFloat16(fused.row(t)[c]);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
