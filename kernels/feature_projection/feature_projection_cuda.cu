#include "kernels/feature_projection/feature_projection.h"

namespace arborist::kernels::cuda {

absl::Status FeatureProjection(const FeatureProjectionArgs&, StreamView) {
  return absl::UnimplementedError("feature_projection: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
