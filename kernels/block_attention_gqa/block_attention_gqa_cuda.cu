#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"
#include "kernels/block_attention_gqa/gqa_merge.cuh"
#include "kernels/block_attention_gqa/gqa_tile.cuh"
#include "kernels/block_attention_gqa/split_layout.h"

namespace arborist::kernels::cuda {
namespace {

// More would only queue: a block strides over the chunks of its tile.
constexpr int64_t kBlocksWanted = 1024;

// Queries into shared memory, zeros behind head_dim and behind the last query.
__device__ void LoadQueries(const Params& p, const Tile& tile, float* query) {
  const int dim = static_cast<int>(p.args.query.columns), padded = static_cast<int>(p.layout.padded_dim);
  for (int i = threadIdx.x; i < kTileQueries * padded; i += kThreads) {
    const int q = i / padded, c = i % padded;
    query[i] = q < tile.count && c < dim ? RowOf(p.args.query, tile.row(p, q), tile.head(p, q))[c] : 0.0f;
  }
}

__device__ void LoadRanges(const Params& p, const Tile& tile, Ranges& ranges) {
  const int q = threadIdx.x;
  if (q < kTileQueries) {
    const bool there = q < tile.count;
    const int64_t row = there ? tile.row(p, q) : 0;
    const int block = static_cast<int>(p.args.block);
    ranges.context_begin[q] = there ? max(p.args.context_begin.data[row], 0) : tile.context;
    ranges.block_begin[q] = there ? max(p.args.block_begin.data[row], 0) : block;
    ranges.block_end[q] = there ? min(p.args.block_end.data[row], block) : 0;
  }
}

// A chunk's keys: the context's rows [begin, begin + count), or the block's.
struct Chunk {
  bool is_block;
  int begin;
  int count;

  __device__ Chunk(const Params& p, const Tile& tile, int index)
      : is_block(index + 1 == tile.chunks()),
        begin(is_block ? 0 : index * kChunkKeys),
        count(is_block ? static_cast<int>(p.args.block) : min(kChunkKeys, tile.context - begin)) {}
  __device__ bool Sees(const Ranges& ranges, int query, int key) const {
    if (key >= count) {
      return false;
    }
    return is_block ? key >= ranges.block_begin[query] && key < ranges.block_end[query]
                    : begin + key >= ranges.context_begin[query];
  }
};

// Rows of keys or values into shared memory; zeros behind head_dim.
__device__ void LoadRows(const Params& p, const Tile& tile, const Chunk& chunk, const float* context,
                         const View3<const float>& block, float* rows) {
  const int dim = static_cast<int>(block.columns), padded = static_cast<int>(p.layout.padded_dim);
  const int64_t stride = block.heads * dim;
  const float* source = chunk.is_block
                            ? RowOf(block, tile.stream * p.args.block, tile.kv_head)
                            : context + (tile.context_first + chunk.begin) * stride + tile.kv_head * dim;
  if (dim == padded && reinterpret_cast<uintptr_t>(source) % sizeof(float4) == 0) {
    const int quads = dim / 4;
#pragma unroll 4
    for (int i = threadIdx.x; i < chunk.count * quads; i += kThreads) {
      const int row = i / quads, c = i % quads * 4;
      *reinterpret_cast<float4*>(rows + row * p.key_step + c) =
          *reinterpret_cast<const float4*>(source + row * stride + c);
    }
    return;
  }
  for (int i = threadIdx.x; i < chunk.count * padded; i += kThreads) {
    const int row = i / padded, c = i % padded;
    rows[row * p.key_step + c] = c < dim ? source[row * stride + c] : 0.0f;
  }
}

// score[q, key] = scale * dot in four running sums, or -inf where the query does not see the key.
__device__ void Score(const Params& p, const Chunk& chunk, const Ranges& ranges, const float* query,
                      const float* keys, float* score) {
  constexpr int kRows = kThreads / kChunkKeys, kEach = kTileQueries / kRows;
  const int key = threadIdx.x % kChunkKeys, first = threadIdx.x / kChunkKeys * kEach;
  const int padded = static_cast<int>(p.layout.padded_dim);
  float4 sum[kEach] = {};
  if (key < chunk.count) {
    for (int c = 0; c < padded; c += 4) {
      const float4 k = *reinterpret_cast<const float4*>(keys + key * p.key_step + c);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float4 q = *reinterpret_cast<const float4*>(query + (first + i) * padded + c);
        sum[i].x = fmaf(q.x, k.x, sum[i].x);
        sum[i].y = fmaf(q.y, k.y, sum[i].y);
        sum[i].z = fmaf(q.z, k.z, sum[i].z);
        sum[i].w = fmaf(q.w, k.w, sum[i].w);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float dot = (sum[i].x + sum[i].y) + (sum[i].z + sum[i].w);
    score[(first + i) * kChunkKeys + key] =
        chunk.Sees(ranges, first + i, key) ? dot * p.args.scale : -INFINITY;
  }
}

// Weights exp(score - max), stored [key, query]; the part's max and sum of each query are written.
__device__ void Exponentiate(const Params& p, const float* score, float* weight, float* part) {
  const int lane = threadIdx.x % 32, padded = static_cast<int>(p.layout.padded_dim);
  for (int q = threadIdx.x / 32; q < kTileQueries; q += kWarps) {
    const float a = score[q * kChunkKeys + lane], b = score[q * kChunkKeys + lane + 32];
    const float top = WarpMax(fmaxf(a, b));
    // A chunk of which the query sees nothing has no weight at all.
    const float x = top == -INFINITY ? 0.0f : expf(a - top), y = top == -INFINITY ? 0.0f : expf(b - top);
    weight[lane * kWeightStep + q] = x;
    weight[(lane + 32) * kWeightStep + q] = y;
    const float sum = WarpSum(x + y);
    if (lane == 0) {
      part[kTileQueries * padded + q] = top;
      part[kTileQueries * (padded + 1) + q] = sum;
    }
  }
}

// A key that the query does not see adds nothing, whatever it holds.
__device__ float Add(float weight, float value, float sum) {
  return weight != 0 ? fmaf(weight, value, sum) : sum;
}
__device__ void Add(float weight, const float4& value, float4& sum) {
  sum.x = Add(weight, value.x, sum.x);
  sum.y = Add(weight, value.y, sum.y);
  sum.z = Add(weight, value.z, sum.z);
  sum.w = Add(weight, value.w, sum.w);
}

// part[q, c] = sum over keys of weight * value. A thread has four queries and four columns; where that leaves
// threads over, the keys are cut into equal ranges, each summed ascending, which are then added ascending:
// head_dim alone decides into how many.
__device__ void Accumulate(const Params& p, const Chunk& chunk, const float* weight, const float* values,
                           float* sums, float* part) {
  const int padded = static_cast<int>(p.layout.padded_dim), quads = padded / 4;
  const int items = kTileQueries / 4 * quads, ranges = p.key_ranges;
  const int keys = kChunkKeys / ranges;
  for (int i = threadIdx.x; i < items * ranges; i += kThreads) {
    const int range = i / items, item = i % items;
    const int q = item / quads * 4, c = item % quads * 4;
    float4 sum[4] = {};
    const int end = min((range + 1) * keys, chunk.count);
    for (int key = range * keys; key < end; ++key) {
      const float4 w = *reinterpret_cast<const float4*>(weight + key * kWeightStep + q);
      const float4 v = *reinterpret_cast<const float4*>(values + key * p.key_step + c);
      Add(w.x, v, sum[0]);
      Add(w.y, v, sum[1]);
      Add(w.z, v, sum[2]);
      Add(w.w, v, sum[3]);
    }
    float* out = ranges == 1 ? part : sums + range * kTileQueries * padded;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      *reinterpret_cast<float4*>(out + (q + j) * padded + c) = sum[j];
    }
  }
  if (ranges == 1) {
    return;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTileQueries * padded; i += kThreads) {
    float sum = sums[i];
    for (int range = 1; range < ranges; ++range) {
      sum += sums[range * kTileQueries * padded + i];
    }
    part[i] = sum;
  }
}

// One chunk of a tile into its part.
__device__ void AttendChunk(const Params& p, const Tile& tile, const Ranges& ranges, int index,
                            const float* query, const SharedLayout& at) {
  const Chunk chunk(p, tile, index);
  float* part = tile.part(p, index);
  float* keys = Shared() + at.keys;
  float* values = Shared() + at.values;
  float* score = Shared() + at.score;
  float* weight = Shared() + at.weight;
  LoadRows(p, tile, chunk, p.args.context_key, p.args.block_key, keys);
  if (at.values != at.keys) {
    LoadRows(p, tile, chunk, p.args.context_value, p.args.block_value, values);
  }
  __syncthreads();
  Score(p, chunk, ranges, query, keys, score);
  __syncthreads();
  if (at.values == at.keys) {
    LoadRows(p, tile, chunk, p.args.context_value, p.args.block_value, values);
  }
  Exponentiate(p, score, weight, part);
  __syncthreads();
  Accumulate(p, chunk, weight, values, Shared() + at.sums, part);
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) Attend(const __grid_constant__ Params p) {
  __shared__ Ranges ranges;
  __shared__ bool last;
  const Tile tile(p);
  const int chunks = tile.chunks();
  if (blockIdx.x < chunks) {
    LoadQueries(p, tile, Shared());
    LoadRanges(p, tile, ranges);
    for (int i = blockIdx.x; i < chunks; i += gridDim.x) {
      AttendChunk(p, tile, ranges, i, Shared(), p.shared);
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    // Wraps to zero at the last arrival: ready for the next call.
    last = atomicInc(p.arrived + tile.index, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (last) {
    Merge(p, tile, Shared());
  }
}

constexpr int64_t kMostShared = 99 * 1024 - 1024;

// Where things lie in shared memory; values lie apart from keys, so that both are on their way at once, where
// there is room, and partial sums over ranges of keys lie where keys and scores were.
SharedLayout LayOut(const gqa::SplitLayout& layout, int key_step, int key_ranges) {
  const int64_t rows = int64_t{kChunkKeys} * key_step;
  SharedLayout at;
  at.score = static_cast<int>(kTileQueries * layout.padded_dim);
  at.weight = at.score + kTileQueries * kChunkKeys;
  at.keys = at.weight + kChunkKeys * kWeightStep;
  at.sums = at.keys;
  const int64_t sums = key_ranges > 1 ? key_ranges * kTileQueries * layout.padded_dim : 0;
  const int64_t first = std::max(rows, sums);
  const bool apart = (at.keys + first + rows) * int64_t{sizeof(float)} <= kMostShared;
  Check(apart || sums == 0, "sums have a place of their own");
  at.values = apart ? static_cast<int>(at.keys + first) : at.keys;
  const int64_t merge = kTileQueries * (2 * layout.max_chunks + 1);
  at.floats = std::max(at.values + rows, merge);
  return at;
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
  Params params;
  params.args = args;
  params.layout = gqa::SplitLayoutOf(args);
  params.group = static_cast<int>(args.query.heads / args.block_key.heads);
  // An odd number of float4s: neighbouring keys then lie in different banks.
  params.key_step = static_cast<int>(params.layout.padded_dim + (params.layout.padded_dim % 8 == 0 ? 4 : 0));
  params.parts = static_cast<float*>(args.scratch);
  params.arrived = reinterpret_cast<unsigned*>(static_cast<char*>(args.scratch) + args.scratch_bytes -
                                               params.layout.counter_bytes());
  const int64_t items = kTileQueries / 4 * (params.layout.padded_dim / 4);
  params.key_ranges = 1;
  while (params.key_ranges < 8 && items * params.key_ranges * 2 <= kThreads) {
    params.key_ranges *= 2;
  }
  params.shared = LayOut(params.layout, params.key_step, params.key_ranges);
  const int64_t shared = params.shared.floats * int64_t{sizeof(float)};
  if (shared > kMostShared) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_context=", args.max_context, ", expected one whose chunks fit shared memory"));
  }
  const int64_t blocks = params.layout.all_tiles();
  const int64_t splits =
      std::clamp<int64_t>((kBlocksWanted + blocks - 1) / blocks, 1, params.layout.max_chunks);
  const dim3 grid(static_cast<unsigned>(splits),
                  static_cast<unsigned>(params.layout.kv_heads * params.layout.tiles),
                  static_cast<unsigned>(params.layout.streams));
  RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(Attend, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(kMostShared)),
                             "block_attention_gqa"));
  Attend<<<grid, kThreads, static_cast<size_t>(shared), static_cast<cudaStream_t>(stream.cuda_stream)>>>(
      params);
  return LaunchStatus("block_attention_gqa");
}

}  // namespace arborist::kernels::cuda
