#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_attention_mla/row_attention.cuh"

namespace arborist::kernels::cuda {
namespace {

template <int latent, int rope>
absl::Status Launch(const AttentionProblem& p, void* stream) {
  constexpr auto kKernel = RowAttention<latent, rope>;
  constexpr int kShared = RowLayout<latent, rope>::kBytes;
  RETURN_IF_ERROR(  // of the current device; ranks have one each
      CudaStatus(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
                 "tree_attention_mla rows: shared memory"));
  const KernelShape shape{
      .grid = {static_cast<unsigned>(p.rows * (p.heads / kRowQueries)), static_cast<unsigned>(p.parts)},
      .block = kTensorThreads,
      .shared_bytes = kShared};
  return LaunchOverlapped("tree_attention_mla rows", kKernel, shape, stream, p);
}

}  // namespace

absl::Status LaunchRowAttention(const AttentionProblem& p, void* stream) {
  return p.latent == 512 ? Launch<512, 64>(p, stream) : Launch<128, 32>(p, stream);
}

}  // namespace arborist::kernels::cuda
