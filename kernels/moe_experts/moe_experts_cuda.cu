#include "kernels/moe_experts/moe_experts.h"

namespace arborist::kernels::cuda {

absl::Status MoeExperts(const MoeExpertsArgs&, StreamView) {
  return absl::UnimplementedError("moe_experts: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
