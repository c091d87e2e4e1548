#include "kernels/row_ops/row_ops.h"

namespace arborist::kernels::cuda {

absl::Status AddRows(const AddRowsArgs&, StreamView) {
  return absl::UnimplementedError("row_ops: no CUDA version yet");
}
absl::Status GatherRows(const GatherRowsArgs&, StreamView) {
  return absl::UnimplementedError("row_ops: no CUDA version yet");
}
absl::Status CopyRows(const CopyRowsArgs&, StreamView) {
  return absl::UnimplementedError("row_ops: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
