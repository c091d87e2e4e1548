#pragma once

#include "kernels/block_attention_gqa/gqa_tile.cuh"

namespace arborist::kernels::cuda {
namespace {

// The parts of a tile in ascending order, by the thread block that arrived last.
__device__ void Merge(const Params& p, const Tile& tile, int chunks, float* memory) {
  const int padded = p.padded, dim = p.dim;
  const int lane = threadIdx.x % 32;
  const int step = static_cast<int>(p.layout.max_chunks);
  float* weight = memory;                          // [query, chunk]: max, then weight
  float* part_sum = memory + kTileQueries * step;  // [query, chunk]
  float* total = part_sum + kTileQueries * step;   // [query]
  for (int i = threadIdx.x; i < chunks * kTileQueries; i += kThreads) {
    const int chunk = i / kTileQueries, q = i % kTileQueries;
    const float* part = tile.part(p, chunk) + kTileQueries * padded;
    weight[q * step + chunk] = __ldcg(part + q);
    part_sum[q * step + chunk] = __ldcg(part + kTileQueries + q);
  }
  __syncthreads();
  for (int q = threadIdx.x / 32; q < tile.count; q += kWarps) {
    float top = -INFINITY;
    for (int chunk = lane; chunk < chunks; chunk += 32) {
      top = fmaxf(top, weight[q * step + chunk]);
    }
    top = WarpMax(top);
    for (int chunk = lane; chunk < chunks; chunk += 32) {
      const float own = weight[q * step + chunk];
      weight[q * step + chunk] = own == -INFINITY ? 0.0f : expf(own - top);
    }
    __syncwarp();
    if (lane == 0) {
      float sum = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        sum = fmaf(part_sum[q * step + chunk], weight[q * step + chunk], sum);
      }
      total[q] = sum;
    }
  }
  __syncthreads();
  constexpr int kAhead = 8;  // loads in flight
  for (int i = threadIdx.x; i < tile.count * dim; i += kThreads) {
    const int q = p.by_dim.Quotient(i), c = p.by_dim.Rest(i, q);
    const float* part = tile.part(p, 0) + q * padded + c;
    float sum = 0;
    for (int begin = 0; begin < chunks; begin += kAhead) {
      float value[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        value[j] = begin + j < chunks ? __ldcg(part + (begin + j) * p.layout.part_floats()) : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        if (begin + j < chunks) {
          sum = fmaf(value[j], weight[q * step + begin + j], sum);
        }
      }
    }
    RowOf(p.args.out, tile.row(p, q), tile.head(p, q))[c] = sum / total[q];
  }
}

}  // namespace
}  // namespace arborist::kernels::cuda
