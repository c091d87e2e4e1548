#pragma once

#include "kernels/block_attention_gqa/gqa_tile.cuh"

// The steps of one chunk: keys and values into shared memory, scores, weights, weighted sums.
namespace arborist::kernels::cuda {
namespace {

__device__ void CopyAhead(float* shared, const float* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
               "l"(from)
               : "memory");
}
// Until what this thread copied ahead is there, but for its latest kPending calls of LoadRows.
template <int kPending>
__device__ void WaitForRows() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Queries on their way into shared memory, zeros behind head_dim and behind the last query. They are there
// with the rows of the next LoadRows.
__device__ void LoadQueries(const Params& p, const Tile& tile, float* query) {
  if (p.dim == p.padded && reinterpret_cast<uintptr_t>(p.args.query.data) % sizeof(float4) == 0) {
    const int quads = p.dim / 4;
    for (int i = threadIdx.x; i < kTileQueries * quads; i += kThreads) {
      const int q = p.by_quads.Quotient(i), c = p.by_quads.Rest(i, q) * 4;
      if (q < tile.count) {
        CopyAhead(query + q * p.padded + c, RowOf(p.args.query, tile.row(p, q), tile.head(p, q)) + c);
      } else {
        *reinterpret_cast<float4*>(query + q * p.padded + c) = make_float4(0, 0, 0, 0);
      }
    }
    return;
  }
  for (int i = threadIdx.x; i < kTileQueries * p.padded; i += kThreads) {
    const int q = p.by_quads.Quotient(i / 4), c = i - q * p.padded;
    query[i] = q < tile.count && c < p.dim ? RowOf(p.args.query, tile.row(p, q), tile.head(p, q))[c] : 0.0f;
  }
}

__device__ void LoadRanges(const Params& p, const Tile& tile, Ranges& ranges) {
  const int q = threadIdx.x;
  if (q < kTileQueries) {
    const bool there = q < tile.count;
    const int64_t row = there ? tile.row(p, q) : 0;
    ranges.context_begin[q] = there ? max(p.args.context_begin.data[row], 0) : tile.context;
    ranges.block_begin[q] = there ? max(p.args.block_begin.data[row], 0) : p.block;
    ranges.block_end[q] = there ? min(p.args.block_end.data[row], p.block) : 0;
  }
}

// Keys [begin, begin + count) of a tile's list: the context's rows, then the block's.
template <int kKeys>
struct Chunk {
  int begin;
  int count;
  int context;  // of the whole list

  __device__ Chunk(const Params& p, const Tile& tile, int index)
      : begin(index * kKeys), count(min(kKeys, tile.keys(p) - begin)), context(tile.context) {}
  __device__ bool Sees(const Ranges& ranges, int query, int key) const {
    const int at = begin + key;
    if (key >= count) {
      return false;
    }
    return at < context ? at >= ranges.context_begin[query]
                        : at - context >= ranges.block_begin[query] && at - context < ranges.block_end[query];
  }
};

// Rows of keys or values on their way into shared memory; zeros behind head_dim.
template <int kKeys>
__device__ void LoadRows(const Params& p, const Tile& tile, const Chunk<kKeys>& chunk, const float* context,
                         const View3<const float>& block, float* rows) {
  const int64_t stride = block.heads * p.dim;
  // Where rows 0 would lie.
  const float* first = context + (tile.context_first + chunk.begin) * stride + tile.kv_head * p.dim;
  const float* own =
      RowOf(block, tile.stream * p.block, tile.kv_head) + (chunk.begin - chunk.context) * stride;
  const int split = chunk.context - chunk.begin;  // rows of the chunk before it are the context's
  const bool quads_align = p.dim == p.padded && reinterpret_cast<uintptr_t>(context) % sizeof(float4) == 0 &&
                           reinterpret_cast<uintptr_t>(block.data) % sizeof(float4) == 0;
  if (quads_align) {
    const int quads = p.dim / 4;
#pragma unroll 4
    for (int i = threadIdx.x; i < chunk.count * quads; i += kThreads) {
      const int row = p.by_quads.Quotient(i), c = p.by_quads.Rest(i, row) * 4;
      CopyAhead(rows + row * p.key_step + c, (row < split ? first : own) + row * stride + c);
    }
  } else {
    for (int i = threadIdx.x; i < chunk.count * p.padded; i += kThreads) {
      const int row = p.by_quads.Quotient(i / 4), c = i - row * p.padded;
      rows[row * p.key_step + c] = c < p.dim ? ((row < split ? first : own) + row * stride)[c] : 0.0f;
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// score[q, key] = scale * dot in four running sums, or -inf where the query does not see the key.
template <int kKeys>
__device__ void Score(const Params& p, const Chunk<kKeys>& chunk, const Ranges& ranges, const float* query,
                      const float* keys, float* score) {
  constexpr int kEach = kTileQueries * kKeys / kThreads;
  const int key = threadIdx.x % kKeys, first = threadIdx.x / kKeys * kEach;
  float4 sum[kEach] = {};
  if (key < chunk.count) {
    for (int c = 0; c < p.padded; c += 4) {
      const float4 k = *reinterpret_cast<const float4*>(keys + key * p.key_step + c);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float4 q = *reinterpret_cast<const float4*>(query + (first + i) * p.padded + c);
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
    score[(first + i) * kKeys + key] = chunk.Sees(ranges, first + i, key) ? dot * p.args.scale : -INFINITY;
  }
}

// Weights exp(score - max), stored [key, query]. The sums of each query are left in `total`; with its
// greatest score in the part too, if there is one.
template <int kKeys>
__device__ void Exponentiate(const Params& p, const Chunk<kKeys>&, const float* score, float* weight,
                             float* part, float* total) {
  constexpr int kEach = kKeys / 32;
  const int lane = threadIdx.x % 32;
  for (int q = threadIdx.x / 32; q < kTileQueries; q += kWarps) {
    float x[kEach];
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = score[q * kKeys + lane + 32 * i];
      top = fmaxf(top, x[i]);
    }
    top = WarpMax(top);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      // A chunk of which the query sees nothing has no weight at all.
      x[i] = top == -INFINITY ? 0.0f : expf(x[i] - top);
      weight[(lane + 32 * i) * kWeightStep + q] = x[i];
      sum += x[i];
    }
    sum = WarpSum(sum);
    if (lane == 0) {
      total[q] = sum;
      if (part != nullptr) {
        part[kTileQueries * p.padded + q] = top;
        part[kTileQueries * (p.padded + 1) + q] = sum;
      }
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

// put(q, c, sum over keys of weight * value). A thread has four queries and four columns; where that leaves
// threads over, the keys are cut into equal ranges, each summed ascending, which are then added ascending:
// head_dim alone decides into how many.
template <int kKeys, typename Put>
__device__ void Accumulate(const Params& p, const Chunk<kKeys>& chunk, const float* weight,
                           const float* values, float* sums, const Put& put) {
  const int quads = p.padded / 4, items = kTileQueries / 4 * quads, ranges = p.key_ranges;
  const int keys = kKeys / ranges;
  for (int i = threadIdx.x; i < items * ranges; i += kThreads) {
    const int range = p.by_quads.Quotient(i / (kTileQueries / 4)), item = i - range * items;
    const int of_item = p.by_quads.Quotient(item), q = of_item * 4, c = p.by_quads.Rest(item, of_item) * 4;
    float4 sum[4] = {};
    const int end = min((range + 1) * keys, chunk.count);
#pragma unroll 4
    for (int key = range * keys; key < end; ++key) {
      const float4 w = *reinterpret_cast<const float4*>(weight + key * kWeightStep + q);
      const float4 v = *reinterpret_cast<const float4*>(values + key * p.key_step + c);
      Add(w.x, v, sum[0]);
      Add(w.y, v, sum[1]);
      Add(w.z, v, sum[2]);
      Add(w.w, v, sum[3]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (ranges > 1) {
        *reinterpret_cast<float4*>(sums + (range * kTileQueries + q + j) * p.padded + c) = sum[j];
      } else {
        put(q + j, c, sum[j].x);
        put(q + j, c + 1, sum[j].y);
        put(q + j, c + 2, sum[j].z);
        put(q + j, c + 3, sum[j].w);
      }
    }
  }
  if (ranges == 1) {
    return;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTileQueries * p.padded; i += kThreads) {
    float sum = sums[i];
    for (int range = 1; range < ranges; ++range) {
      sum += sums[range * kTileQueries * p.padded + i];
    }
    const int q = p.by_quads.Quotient(i / 4);
    put(q, i - q * p.padded, sum);
  }
}

}  // namespace
}  // namespace arborist::kernels::cuda
