#pragma once

#include <cuda_runtime.h>

#include "kernels/kernel_overlap/block_cluster.cuh"
#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/row_layout.cuh"
#include "kernels/tree_attention_mla/tensor_instructions.cuh"

namespace arborist::kernels::cuda {

// Of the eight queries from `first_query` on, whose parts the blocks of this cluster have in shared memory:
// block `rank` writes its share of the columns. In the order of join_parts_cuda.cu.
template <int latent, int rope>
__device__ inline void JoinCluster(const AttentionProblem& p, const unsigned char* memory, int32_t row,
                                   int64_t first_query, int32_t rank) {
  using L = RowLayout<latent, rope>;
  using K = Keys<latent, rope>;
  const auto thread = static_cast<int>(threadIdx.x);
  constexpr int kLanes = 8;
  constexpr int kPlaces = kRowQueries * latent / 4;
  const int parts = p.TailCount(row) == 0 ? 0 : Splits(p.Blocks(row)) + 1;
  for (int i = rank * kRowThreads + thread; i < kPlaces; i += p.parts * kRowThreads) {
    const int query = i / (latent / 4);
    const int place = i % (latent / 4) * 4;
    const uint32_t sums = SharedAddress(memory + L::kSums) + query * 8;
    const uint32_t values = SharedAddress(memory + L::kParts) + (query * latent + place) * 4;
    float2 own[kLanes];
    float4 value[kLanes];
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      const bool valid = lane < parts;
      own[lane] = valid ? LoadFromBlock2(sums, lane) : float2{-INFINITY, 0};
      value[lane] = valid ? LoadFromBlock4(values, lane) : float4{0, 0, 0, 0};
    }
    float m = own[0].x;
#pragma unroll
    for (int lane = 1; lane < kLanes; ++lane) {
      m = fmaxf(m, own[lane].x);
    }
    for (int part = kLanes; part < parts; ++part) {
      m = fmaxf(m, LoadFromBlock2(sums, part).x);
    }
    float4 all = {0, 0, 0, 0};
    float sum = 0;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      float4 of_lane = {0, 0, 0, 0};
      float sum_of_lane = 0;
      const auto add = [&](float2 max_sum, float4 values_of_part) {
        const float w = exp2f(max_sum.x - m);
        sum_of_lane = fmaf(max_sum.y, w, sum_of_lane);
        of_lane.x = fmaf(values_of_part.x, w, of_lane.x);
        of_lane.y = fmaf(values_of_part.y, w, of_lane.y);
        of_lane.z = fmaf(values_of_part.z, w, of_lane.z);
        of_lane.w = fmaf(values_of_part.w, w, of_lane.w);
      };
      if (lane < parts) {
        add(own[lane], value[lane]);
      }
      for (int part = lane + kLanes; part < parts; part += kLanes) {
        add(LoadFromBlock2(sums, part), LoadFromBlock4(values, part));
      }
      sum += sum_of_lane;
      all.x += of_lane.x;
      all.y += of_lane.y;
      all.z += of_lane.z;
      all.w += of_lane.w;
    }
    const float of[4] = {all.x, all.y, all.z, all.w};
    float* out = p.out + (first_query + query) * latent;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // + 0: a zero has no sign, whatever masked keys of neighbours added to it.
      out[PartColumn(K::kPacked, place, j)] = parts == 0 ? 0.0f : of[j] / sum + 0.0f;
    }
  }
}

}  // namespace arborist::kernels::cuda
