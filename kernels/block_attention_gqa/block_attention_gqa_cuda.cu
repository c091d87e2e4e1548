#include <cuda_runtime.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"
#include "kernels/block_attention_gqa/split_layout.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTileQueries = gqa::kTileQueries;
constexpr int kChunkKeys = gqa::kChunkKeys;
static_assert(kThreads % kChunkKeys == 0 && kTileQueries % (kThreads / kChunkKeys) == 0);
// More would only queue: a block strides over the chunks of its tile.
constexpr int64_t kBlocksWanted = 1024;

struct Params {
  BlockAttentionGqaArgs args;
  gqa::SplitLayout layout;
  int group = 0;     // query heads of a key head
  int key_step = 0;  // floats from a key to the next in shared memory
  float* parts = nullptr;
  unsigned* arrived = nullptr;
};

template <typename T>
__device__ T* RowOf(const View3<T>& view, int64_t row, int64_t head) {
  return view.data + (row * view.heads + head) * view.columns;
}

// What of a stream a query sees, cut to what is there.
struct Ranges {
  int context_begin[kTileQueries];
  int block_begin[kTileQueries];
  int block_end[kTileQueries];
};

// A thread block's tile: queries [first, first + count) of one key head in one stream.
struct Tile {
  int64_t stream;
  int kv_head;
  int first;
  int count;
  int64_t index;  // among all tiles
  int64_t context_first;
  int context;

  __device__ explicit Tile(const Params& p)
      : stream(blockIdx.z),
        kv_head(static_cast<int>(blockIdx.y / p.layout.tiles)),
        first(static_cast<int>(blockIdx.y % p.layout.tiles) * kTileQueries),
        count(min(kTileQueries, p.group * static_cast<int>(p.args.block) - first)),
        index((stream * p.layout.kv_heads + kv_head) * p.layout.tiles + blockIdx.y % p.layout.tiles) {
    const int64_t plane = p.args.plane_rows;
    context_first = min(max(int64_t{p.args.context_first.data[stream]}, int64_t{0}), plane);
    const int64_t most = min(p.args.max_context, plane - context_first);
    context = static_cast<int>(min(max(int64_t{p.args.context_rows.data[stream]}, int64_t{0}), most));
  }
  __device__ int64_t row(const Params& p, int query) const {
    return stream * p.args.block + (first + query) / p.group;
  }
  __device__ int head(const Params& p, int query) const {
    return kv_head * p.group + (first + query) % p.group;
  }
  __device__ int chunks() const { return (context + kChunkKeys - 1) / kChunkKeys + 1; }
  __device__ float* part(const Params& p, int chunk) const {
    return p.parts + (index * p.layout.max_chunks + chunk) * p.layout.part_floats();
  }
};

__device__ float WarpMax(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  }
  return value;
}
__device__ float WarpSum(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value += __shfl_xor_sync(~0u, value, step);
  }
  return value;
}

__device__ float* Shared() {
  extern __shared__ float4 memory[];
  return reinterpret_cast<float*>(memory);
}

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

// score becomes exp(score - max); the part's max and sum of each query are written.
__device__ void Exponentiate(const Params& p, float* score, float* part) {
  const int lane = threadIdx.x % 32, padded = static_cast<int>(p.layout.padded_dim);
  for (int q = threadIdx.x / 32; q < kTileQueries; q += kWarps) {
    float* row = score + q * kChunkKeys;
    const float a = row[lane], b = row[lane + 32];
    const float top = WarpMax(fmaxf(a, b));
    // A chunk of which the query sees nothing has no weight at all.
    const float x = top == -INFINITY ? 0.0f : expf(a - top), y = top == -INFINITY ? 0.0f : expf(b - top);
    row[lane] = x;
    row[lane + 32] = y;
    const float sum = WarpSum(x + y);
    if (lane == 0) {
      part[kTileQueries * padded + q] = top;
      part[kTileQueries * (padded + 1) + q] = sum;
    }
  }
}

// part[q, c] = sum over keys, ascending, of score * value. Keys that a query does not see are left out, so
// that what they hold is no matter.
__device__ void Accumulate(const Params& p, const Chunk& chunk, const float* score, const float* values,
                           float* part) {
  const int quads = static_cast<int>(p.layout.padded_dim) / 4;
  for (int i = threadIdx.x; i < kTileQueries * quads; i += kThreads) {
    const int q = i / quads, c = i % quads * 4;
    float4 sum = {0, 0, 0, 0};
    for (int key = 0; key < chunk.count; ++key) {
      const float weight = score[q * kChunkKeys + key];
      const float4 v = *reinterpret_cast<const float4*>(values + key * p.key_step + c);
      if (weight != 0) {
        sum.x = fmaf(weight, v.x, sum.x);
        sum.y = fmaf(weight, v.y, sum.y);
        sum.z = fmaf(weight, v.z, sum.z);
        sum.w = fmaf(weight, v.w, sum.w);
      }
    }
    *reinterpret_cast<float4*>(part + q * quads * 4 + c) = sum;
  }
}

// The parts of a tile in ascending order, by the thread block that arrived last.
__device__ void Merge(const Params& p, const Tile& tile, float* weight, float* total) {
  const int padded = static_cast<int>(p.layout.padded_dim), dim = static_cast<int>(p.args.query.columns);
  const int chunks = tile.chunks(), lane = threadIdx.x % 32;
  for (int q = threadIdx.x / 32; q < tile.count; q += kWarps) {
    float top = -INFINITY;
    for (int chunk = lane; chunk < chunks; chunk += 32) {
      top = fmaxf(top, __ldcg(tile.part(p, chunk) + kTileQueries * padded + q));
    }
    top = WarpMax(top);
    for (int chunk = lane; chunk < chunks; chunk += 32) {
      const float own = __ldcg(tile.part(p, chunk) + kTileQueries * padded + q);
      weight[q * p.layout.max_chunks + chunk] = own == -INFINITY ? 0.0f : expf(own - top);
    }
    __syncwarp();
    if (lane == 0) {
      float sum = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        sum = fmaf(__ldcg(tile.part(p, chunk) + kTileQueries * (padded + 1) + q),
                   weight[q * p.layout.max_chunks + chunk], sum);
      }
      total[q] = sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < tile.count * dim; i += kThreads) {
    const int q = i / dim, c = i % dim;
    float sum = 0;
#pragma unroll 8
    for (int chunk = 0; chunk < chunks; ++chunk) {
      sum = fmaf(__ldcg(tile.part(p, chunk) + q * padded + c), weight[q * p.layout.max_chunks + chunk], sum);
    }
    RowOf(p.args.out, tile.row(p, q), tile.head(p, q))[c] = sum / total[q];
  }
}

__global__ void __launch_bounds__(kThreads) Attend(const __grid_constant__ Params p) {
  __shared__ Ranges ranges;
  __shared__ bool last;
  __shared__ float total[kTileQueries];
  const Tile tile(p);
  float* query = Shared();
  float* score = query + kTileQueries * p.layout.padded_dim;
  float* rows = score + kTileQueries * kChunkKeys;
  const int chunks = tile.chunks();
  if (blockIdx.x < chunks) {
    LoadQueries(p, tile, query);
    LoadRanges(p, tile, ranges);
  }
  for (int i = blockIdx.x; i < chunks; i += gridDim.x) {
    const Chunk chunk(p, tile, i);
    float* part = tile.part(p, i);
    LoadRows(p, tile, chunk, p.args.context_key, p.args.block_key, rows);
    __syncthreads();
    Score(p, chunk, ranges, query, rows, score);
    __syncthreads();
    LoadRows(p, tile, chunk, p.args.context_value, p.args.block_value, rows);
    Exponentiate(p, score, part);
    __syncthreads();
    Accumulate(p, chunk, score, rows, part);
    __syncthreads();
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
    Merge(p, tile, Shared(), total);
  }
}

size_t SharedBytes(const Params& p) {
  const int64_t chunk = kTileQueries * (p.layout.padded_dim + kChunkKeys) + kChunkKeys * int64_t{p.key_step};
  const int64_t merge = kTileQueries * p.layout.max_chunks;
  return static_cast<size_t>(std::max(chunk, merge)) * sizeof(float);
}

constexpr size_t kMostShared = 99 * 1024 - 1024;

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
  const size_t shared = SharedBytes(params);
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
  Attend<<<grid, kThreads, shared, static_cast<cudaStream_t>(stream.cuda_stream)>>>(params);
  return LaunchStatus("block_attention_gqa");
}

}  // namespace arborist::kernels::cuda
