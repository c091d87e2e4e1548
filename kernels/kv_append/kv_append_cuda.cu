#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels::cuda {

absl::Status KvAppend(const KvAppendArgs&, StreamView) {
  return absl::UnimplementedError("kv_append: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
