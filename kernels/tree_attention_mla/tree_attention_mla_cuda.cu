#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels::cuda {

absl::Status TreeAttentionMla(const TreeAttentionMlaArgs&, StreamView) {
  return absl::UnimplementedError("tree_attention_mla: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
