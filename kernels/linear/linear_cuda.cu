#include "kernels/linear/linear.h"

namespace arborist::kernels::cuda {

absl::Status Linear(const LinearArgs&, StreamView) {
  return absl::UnimplementedError("linear: no CUDA version yet");
}
absl::Status LinearRowParallel(const LinearRowParallelArgs&, StreamView) {
  return absl::UnimplementedError("linear: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
