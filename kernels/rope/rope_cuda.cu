#include "kernels/rope/rope.h"

namespace arborist::kernels::cuda {

absl::Status Rope(const RopeArgs&, StreamView) {
  return absl::UnimplementedError("rope: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
