#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "kernels/block_attention_gqa/block_attention_gqa.h"
#include "kernels/block_attention_gqa/split_layout.h"

// What the steps of block attention share on the device: a thread block's tile of queries, its place in
// memory.
namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTileQueries = gqa::kTileQueries;
// Floats from a key's weights to the next's: whole float4s, in other banks.
constexpr int kWeightStep = kTileQueries + 4;

// Floats from the start of shared memory; the queries come first.
struct SharedLayout {
  int score = 0;  // [query, key]
  int keys = 0;
  int values = 0;
  int weight = 0;  // [key, query]
  int sums = 0;    // [range, query, column]
  int64_t floats = 0;
};

// Divides by what the call knows and the compiler does not: a division in every loop is most of the code.
struct Divisor {
  Divisor() = default;
  explicit Divisor(int64_t by)
      : divisor(static_cast<int>(by)),
        multiplier(static_cast<uint32_t>(((uint64_t{1} << 32) + divisor - 1) / divisor)) {}
  // Of 0 <= i < 2^24, for divisors up to 256.
  __device__ int Quotient(int i) const {
    return divisor == 1 ? i : static_cast<int>(__umulhi(static_cast<uint32_t>(i), multiplier));
  }
  __device__ int Rest(int i, int quotient) const { return i - quotient * divisor; }

  int divisor = 1;
  uint32_t multiplier = 0;
};

struct Params {
  BlockAttentionGqaArgs args;
  gqa::SplitLayout layout;
  SharedLayout shared;
  int block = 0;
  int tiles = 0;  // of a key head
  int dim = 0;
  int padded = 0;    // dim in whole float4s
  int group = 0;     // query heads of a key head
  Divisor by_quads;  // padded / 4
  Divisor by_dim;
  Divisor by_group;
  int key_step = 0;    // floats from a key to the next in shared memory
  int key_ranges = 0;  // of a chunk, summed apart
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
        kv_head(static_cast<int>(blockIdx.y) / p.tiles),
        first(static_cast<int>(blockIdx.y) % p.tiles * kTileQueries),
        count(min(kTileQueries, p.group * p.block - first)),
        index(stream * gridDim.y + blockIdx.y) {
    const int64_t plane = p.args.plane_rows;
    context_first = min(max(int64_t{p.args.context_first.data[stream]}, int64_t{0}), plane);
    const int64_t most = min(p.args.max_context, plane - context_first);
    context = static_cast<int>(min(max(int64_t{p.args.context_rows.data[stream]}, int64_t{0}), most));
  }
  __device__ int64_t row(const Params& p, int query) const {
    return stream * p.block + p.by_group.Quotient(first + query);
  }
  __device__ int head(const Params& p, int query) const {
    return kv_head * p.group + p.by_group.Rest(first + query, p.by_group.Quotient(first + query));
  }
  __device__ int keys(const Params& p) const { return context + p.block; }
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

}  // namespace
}  // namespace arborist::kernels::cuda
