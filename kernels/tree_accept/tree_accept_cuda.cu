#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels::cuda {

absl::Status TreeAccept(const TreeAcceptArgs&, StreamView) {
  return absl::UnimplementedError("tree_accept: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
