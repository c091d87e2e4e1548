#include "kernels/moe_route/moe_route.h"

namespace arborist::kernels::cuda {

absl::Status MoeRoute(const MoeRouteArgs&, StreamView) {
  return absl::UnimplementedError("moe_route: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
