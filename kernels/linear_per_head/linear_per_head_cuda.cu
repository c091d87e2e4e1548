#include "kernels/linear_per_head/linear_per_head.h"

namespace arborist::kernels::cuda {

absl::Status LinearPerHead(const LinearPerHeadArgs&, StreamView) {
  return absl::UnimplementedError("linear_per_head: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
