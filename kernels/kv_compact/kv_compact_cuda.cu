#include "kernels/kv_compact/kv_compact.h"

namespace arborist::kernels::cuda {

absl::Status KvCompact(const KvCompactArgs&, StreamView) {
  return absl::UnimplementedError("kv_compact: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
