#include "kernels/block_attention_gqa/block_attention_gqa.h"

namespace arborist::kernels::cuda {

absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs&, StreamView) {
  return absl::UnimplementedError("block_attention_gqa: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
