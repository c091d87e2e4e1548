#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"
#include "kernels/block_attention_gqa/gqa_chunk.cuh"
#include "kernels/block_attention_gqa/gqa_merge.cuh"
#include "kernels/block_attention_gqa/gqa_tile.cuh"
#include "kernels/block_attention_gqa/split_layout.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"

namespace arborist::kernels::cuda {
namespace {

// More would only queue: a block strides over the chunks of its tile.
constexpr int64_t kBlocksWanted = 1024;
constexpr int64_t kMostShared = 99 * 1024 - 1024;

// One chunk of a tile: into its part, or into `out` where it is the only one.
template <int kKeys>
__device__ void AttendChunk(const Params& p, const Tile& tile, Ranges& ranges, int index, bool only,
                            float* total) {
  const Chunk<kKeys> chunk(p, tile, index);
  const bool first = index == static_cast<int>(blockIdx.x);
  float* part = tile.part(p, index);
  float* memory = Shared();
  float* keys = memory + p.shared.keys;
  float* values = memory + p.shared.values;
  if (first) {
    LoadQueries(p, tile, memory);
  }
  LoadRows(p, tile, chunk, p.args.context_key, p.args.block_key, keys);
  if (values != keys) {
    LoadRows(p, tile, chunk, p.args.context_value, p.args.block_value, values);
  }
  if (first) {
    LoadRanges(p, tile, ranges);  // while the others are on their way
  }
  values != keys ? WaitForRows<1>() : WaitForRows<0>();
  __syncthreads();
  Score(p, chunk, ranges, memory, keys, memory + p.shared.score);
  __syncthreads();
  if (values == keys) {
    LoadRows(p, tile, chunk, p.args.context_value, p.args.block_value, values);
  }
  Exponentiate(p, chunk, memory + p.shared.score, memory + p.shared.weight, only ? nullptr : part, total);
  WaitForRows<0>();
  __syncthreads();
  Accumulate(p, chunk, memory + p.shared.weight, values, memory + p.shared.sums,
             [&](int q, int c, float sum) {
               if (!only) {
                 part[q * p.padded + c] = sum;
               } else if (q < tile.count && c < p.dim) {
                 RowOf(p.args.out, tile.row(p, q), tile.head(p, q))[c] = sum / total[q];
               }
             });
  __syncthreads();
}

template <int kKeys>
__global__ void __launch_bounds__(kThreads) Attend(const __grid_constant__ Params p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  __shared__ Ranges ranges;
  __shared__ float total[kTileQueries];
  __shared__ bool last;
  const Tile tile(p);
  const int chunks = (tile.keys(p) + kKeys - 1) / kKeys;
  if (blockIdx.x >= chunks) {
    return;
  }
  for (int i = blockIdx.x; i < chunks; i += gridDim.x) {
    AttendChunk<kKeys>(p, tile, ranges, i, chunks == 1, total);
  }
  if (chunks == 1) {
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();  // for the whole block: the barrier stands before it
    // Wraps to zero at the last arrival: ready for the next call.
    const unsigned others = min(gridDim.x, static_cast<unsigned>(chunks)) - 1;
    last = atomicInc(p.arrived + tile.index, others) == others;
    __threadfence();
  }
  __syncthreads();
  if (last) {
    Merge(p, tile, chunks, Shared());
  }
}

// Where things lie in shared memory. Values lie apart from keys, so that both are on their way at once, where
// there is room; then weights and sums lie where the keys were.
SharedLayout LayOut(const Params& p) {
  const int keys = p.layout.chunk_keys;
  const int64_t rows = int64_t{keys} * p.key_step, weights = int64_t{keys} * kWeightStep;
  const int64_t sums = p.key_ranges > 1 ? int64_t{p.key_ranges} * kTileQueries * p.padded : 0;
  SharedLayout at;
  at.score = kTileQueries * p.padded;
  at.keys = at.score + kTileQueries * keys;
  const int64_t first = std::max(rows, weights + sums);
  const bool apart = (at.keys + first + rows) * int64_t{sizeof(float)} <= kMostShared;
  at.values = static_cast<int>(apart ? at.keys + first : at.keys);
  at.weight = static_cast<int>(apart ? at.keys : at.keys + rows);
  at.sums = static_cast<int>(at.weight + weights);
  const int64_t attend = apart ? at.values + rows : at.sums + sums;
  const int64_t merge = kTileQueries * (2 * p.layout.max_chunks + 1);
  at.floats = std::max(attend, merge);
  return at;
}

Params ParamsOf(const BlockAttentionGqaArgs& args) {
  Params p;
  p.args = args;
  p.layout = gqa::SplitLayoutOf(args);
  p.block = static_cast<int>(args.block);
  p.tiles = static_cast<int>(p.layout.tiles);
  p.dim = static_cast<int>(args.query.columns);
  p.padded = static_cast<int>(p.layout.padded_dim);
  p.group = static_cast<int>(args.query.heads / args.block_key.heads);
  p.by_quads = Divisor(p.padded / 4);
  p.by_dim = Divisor(p.dim);
  p.by_group = Divisor(p.group);
  // An odd number of float4s: neighbouring keys then lie in different banks.
  p.key_step = p.padded + (p.padded % 8 == 0 ? 4 : 0);
  p.key_ranges = 1;
  while (p.key_ranges < 8 && p.padded * p.key_ranges * 2 <= kThreads) {
    p.key_ranges *= 2;
  }
  p.parts = static_cast<float*>(args.scratch);
  p.arrived = reinterpret_cast<unsigned*>(static_cast<char*>(args.scratch) + args.scratch_bytes -
                                          p.layout.counter_bytes());
  p.shared = LayOut(p);
  return p;
}

template <int kKeys>
absl::Status Launch(const Params& p, cudaStream_t stream) {
  const int64_t tiles = p.layout.all_tiles();
  const int64_t splits = std::clamp<int64_t>((kBlocksWanted + tiles - 1) / tiles, 1, p.layout.max_chunks);
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(p.layout.kv_heads * p.layout.tiles),
                  static_cast<unsigned>(p.layout.streams));
  RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(Attend<kKeys>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(kMostShared)),
                             "block_attention_gqa"));
  const KernelShape shape{
      .grid = grid, .block = kThreads, .shared_bytes = static_cast<size_t>(p.shared.floats) * sizeof(float)};
  return LaunchOverlapped("block_attention_gqa", Attend<kKeys>, shape, stream, p);
}

}  // namespace

absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateBlockAttentionGqaShapes(args));
  const size_t wanted = BlockAttentionGqaScratchBytes(args);
  if (args.scratch == nullptr || args.scratch_bytes < wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("scratch_bytes=", args.scratch_bytes, ", expected at least ", wanted));
  }
  if (args.query.rows == 0) {
    return absl::OkStatus();
  }
  const Params p = ParamsOf(args);
  if (p.shared.floats * int64_t{sizeof(float)} > kMostShared) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_context=", args.max_context, ", expected one whose chunks fit shared memory"));
  }
  const auto cuda_stream = static_cast<cudaStream_t>(stream.cuda_stream);
  switch (p.layout.chunk_keys) {
    case 256:
      return Launch<256>(p, cuda_stream);
    case 128:
      return Launch<128>(p, cuda_stream);
    default:
      return Launch<64>(p, cuda_stream);
  }
}

}  // namespace arborist::kernels::cuda
