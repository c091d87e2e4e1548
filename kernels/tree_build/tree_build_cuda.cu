#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::cuda {

absl::Status TreeBuild(const TreeBuildArgs&, StreamView) {
  return absl::UnimplementedError("tree_build: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
