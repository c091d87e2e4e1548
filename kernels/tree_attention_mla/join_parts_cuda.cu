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

}  // namespace

absl::Status LaunchJoinParts(const AttentionProblem& p, void* stream) {
  const int64_t warps = int64_t{p.rows} * p.heads * ((p.latent + kColumns - 1) / kColumns);
  return LaunchOverlapped(
      "tree_attention_mla join", JoinParts,
      {.grid = static_cast<unsigned>((warps + kWarps - 1) / kWarps), .block = kWarps * 32}, stream, p);
}

}  // namespace arborist::kernels::cuda
