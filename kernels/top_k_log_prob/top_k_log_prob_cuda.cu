#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels::cuda {

absl::Status TopKLogProb(const TopKLogProbArgs&, StreamView) {
  return absl::UnimplementedError("top_k_log_prob: no CUDA version yet");
}

}  // namespace arborist::kernels::cuda
