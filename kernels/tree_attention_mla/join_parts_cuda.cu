#include <cuda_runtime.h>

#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/cuda_problem.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kColumns = 128;  // of a warp, four a lane
constexpr int kLanes = 8;      // partial results in flight
constexpr int kWarps = 8;

// A warp joins kColumns columns of one query: m is the largest of all parts; part i is added to lane i % 8 in
// ascending order, the lanes are added in ascending order.
__global__ void JoinParts(AttentionProblem p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int pieces = (p.latent + kColumns - 1) / kColumns;
  const int64_t index = blockIdx.x * int64_t{kWarps} + threadIdx.x / 32;
  const int64_t query = index / pieces;
  if (query >= int64_t{p.rows} * p.heads) {
    return;
  }
  const int column = static_cast<int>(index % pieces) * kColumns + lane * 4;
  const auto row = static_cast<int32_t>(query / p.heads);
  const int parts = p.TailCount(row) == 0 ? 0 : Splits(p.Blocks(row)) + 1;
  const auto* max_sum = reinterpret_cast<const float2*>(p.max_sum) + p.Part(query, 0);
  float m = -INFINITY;
  for (int i = lane; i < parts; i += 32) {
    m = fmaxf(m, max_sum[i].x);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, offset));
  }
  float4 acc[kLanes] = {};
  float sum[kLanes] = {};
  const bool inside = column < p.acc_stride;
  const float* source = p.acc + p.Part(query, 0) * p.acc_stride + column;
#pragma unroll 1
  for (int first = 0; first < parts; first += kLanes) {
    float4 value[kLanes];
    float2 ms[kLanes];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const bool valid = first + i < parts;
      ms[i] = valid ? max_sum[first + i] : float2{-INFINITY, 0};
      value[i] = valid && inside
                     ? *reinterpret_cast<const float4*>(source + int64_t{first + i} * p.acc_stride)
                     : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      if (first + i < parts) {
        const float w = exp2f(ms[i].x - m);
        sum[i] = fmaf(ms[i].y, w, sum[i]);
        acc[i].x = fmaf(value[i].x, w, acc[i].x);
        acc[i].y = fmaf(value[i].y, w, acc[i].y);
        acc[i].z = fmaf(value[i].z, w, acc[i].z);
        acc[i].w = fmaf(value[i].w, w, acc[i].w);
      }
    }
  }
#pragma unroll
  for (int i = 1; i < kLanes; ++i) {
    sum[0] += sum[i];
    acc[0].x += acc[i].x;
    acc[0].y += acc[i].y;
    acc[0].z += acc[i].z;
    acc[0].w += acc[i].w;
  }
  const float all[4] = {acc[0].x, acc[0].y, acc[0].z, acc[0].w};
  for (int i = 0; i < 4; ++i) {
    const int32_t at = PartColumn(p.packed, column, i);
    if (at < p.latent) {
      // + 0: a zero has no sign, whatever masked keys of neighbours added to it.
      p.out[query * p.latent + at] = parts == 0 ? 0.0f : all[i] / sum[0] + 0.0f;
    }
  }
}

// The same for many queries: a warp joins a whole one, of at most 32 parts, lane after lane, so that it needs
// the registers of one lane only.
template <int latent>
__global__ void __launch_bounds__(kWarps * 32, 3) JoinManyQueries(AttentionProblem p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  constexpr int kFours = latent / kColumns;
  constexpr int kAtOnce = 2;
  const int thread = static_cast<int>(threadIdx.x) % 32;
  const auto query = static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
  if (query >= p.rows * p.heads) {
    return;
  }
  const int32_t row = query / p.heads;
  const int parts = p.TailCount(row) == 0 ? 0 : Splits(p.Blocks(row)) + 1;
  const auto* max_sum = reinterpret_cast<const float2*>(p.max_sum) + p.Part(query, 0);
  const float* source = p.acc + p.Part(query, 0) * p.acc_stride + thread * 4;
  const float2 own = thread < parts ? max_sum[thread] : float2{-INFINITY, 0};
  // Lane 0 has parts 0, 8, 16 ..., then comes lane 1.
  int part = 0;
  int first = 0;
  const auto step = [&] {
    part += kLanes;
    part = part >= parts && first < kLanes - 1 ? ++first : part;
  };
  int index[kAtOnce];
  float4 value[kAtOnce][kFours];
  const auto load = [&] {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      index[i] = part;
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        value[i][j] =
            part < parts
                ? *reinterpret_cast<const float4*>(source + int64_t{part} * p.acc_stride + j * kColumns)
                : float4{0, 0, 0, 0};
      }
      step();
    }
  };
  load();
  float m = own.x;
  for (int offset = 16; offset > 0; offset /= 2) {
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, offset));
  }
  const float weight = exp2f(own.x - m);
  float4 all[kFours] = {};
  float4 of_lane[kFours] = {};
  float sum = 0;
  float sum_of_lane = 0;
#pragma unroll 1
  for (int done = 0; done < parts; done += kAtOnce) {
    if (done > 0) {
      load();
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const float w = __shfl_sync(0xffffffffu, weight, index[i]);
      const float s = __shfl_sync(0xffffffffu, own.y, index[i]);
      if (index[i] < parts) {
        sum_of_lane = fmaf(s, w, sum_of_lane);
#pragma unroll
        for (int j = 0; j < kFours; ++j) {
          of_lane[j].x = fmaf(value[i][j].x, w, of_lane[j].x);
          of_lane[j].y = fmaf(value[i][j].y, w, of_lane[j].y);
          of_lane[j].z = fmaf(value[i][j].z, w, of_lane[j].z);
          of_lane[j].w = fmaf(value[i][j].w, w, of_lane[j].w);
        }
        if (index[i] + kLanes >= parts) {
          sum += sum_of_lane;
          sum_of_lane = 0;
#pragma unroll
          for (int j = 0; j < kFours; ++j) {
            all[j].x += of_lane[j].x;
            all[j].y += of_lane[j].y;
            all[j].z += of_lane[j].z;
            all[j].w += of_lane[j].w;
            of_lane[j] = {0, 0, 0, 0};
          }
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    const float of[4] = {all[j].x, all[j].y, all[j].z, all[j].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // + 0: a zero has no sign, whatever masked keys of neighbours added to it.
      p.out[int64_t{query} * latent + PartColumn(p.packed, j * kColumns + thread * 4, i)] =
          parts == 0 ? 0.0f : of[i] / sum + 0.0f;
    }
  }
}

}  // namespace

absl::Status LaunchJoinParts(const AttentionProblem& p, void* stream) {
  constexpr int64_t kManyQueries = 2048;
  const int64_t queries = int64_t{p.rows} * p.heads;
  if (p.latent == 512 && p.parts <= 32 && queries >= kManyQueries) {
    return LaunchOverlapped(
        "tree_attention_mla join", JoinManyQueries<512>,
        {.grid = static_cast<unsigned>((queries + kWarps - 1) / kWarps), .block = kWarps * 32}, stream, p);
  }
  const int64_t warps = int64_t{p.rows} * p.heads * ((p.latent + kColumns - 1) / kColumns);
  return LaunchOverlapped(
      "tree_attention_mla join", JoinParts,
      {.grid = static_cast<unsigned>((warps + kWarps - 1) / kWarps), .block = kWarps * 32}, stream, p);
}

}  // namespace arborist::kernels::cuda
