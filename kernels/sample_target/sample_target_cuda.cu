#include "kernels/sample_target/sample_target.h"

namespace arborist::kernels::cuda {

absl::Status SampleTarget(const SampleTargetArgs&, StreamView) {
  return absl::UnimplementedError("sample_target: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
