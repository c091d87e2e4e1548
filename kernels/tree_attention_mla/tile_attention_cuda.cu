#include <cuda_runtime.h>

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_attention_mla/tile_attention.cuh"

namespace arborist::kernels::cuda {
namespace {

template <int tile_queries>
absl::Status Launch(AttentionProblem p, int processors, void* stream) {
  constexpr auto kKernel = TileAttention<512, 64, tile_queries>;
  constexpr int kShared = Layout<512, 64, tile_queries>::kBytes;
  RETURN_IF_ERROR(  // of the current device; ranks have one each
      CudaStatus(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
                 "tree_attention_mla tiles: shared memory"));
  p.queries_per_tile = tile_queries;
  p.whole = true;
  RETURN_IF_ERROR(LaunchWorkList(p, stream));
  const KernelShape shape{
      .grid = static_cast<unsigned>(processors), .block = kTensorThreads, .shared_bytes = kShared};
  return LaunchOverlapped("tree_attention_mla tiles", kKernel, shape, stream, p);
}

}  // namespace

absl::Status LaunchTileAttention(const AttentionProblem& p, int tile_queries, int processors, void* stream) {
  return tile_queries == 48 ? Launch<48>(p, processors, stream) : Launch<64>(p, processors, stream);
}

}  // namespace arborist::kernels::cuda
