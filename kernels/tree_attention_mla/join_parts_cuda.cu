#include <cuda_runtime.h>

#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/cuda_problem.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kColumns = 128;  // of a warp, four a lane
constexpr int kLanes = 8;      // partial results in flight
constexpr int kWarps = 8;

// m of all parts, in all threads of the warp.
__device__ float LargestOfParts(const float2* max_sum, int parts, int thread) {
  float m = -INFINITY;
  for (int i = thread; i < parts; i += 32) {
    m = fmaxf(m, max_sum[i].x);
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, offset));
  }
  return m;
}

// Four columns of a query's result.
__device__ void Write(const AttentionProblem& p, int64_t query, int column, const float4& acc, float sum,
                      int parts) {
  const float all[4] = {acc.x, acc.y, acc.z, acc.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int32_t at = PartColumn(p.packed, column, i);
    if (at < p.latent) {
      // + 0: a zero has no sign, whatever masked keys of neighbours added to it.
      p.out[query * p.latent + at] = parts == 0 ? 0.0f : all[i] / sum + 0.0f;
    }
  }
}

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
  const float m = LargestOfParts(max_sum, parts, lane);
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
  Write(p, query, column, acc[0], sum[0], parts);
}

// The parts in the order in which they are added: lane 0 has parts 0, 8, 16 ..., then comes lane 1.
class PartOrder {
 public:
  __device__ explicit PartOrder(int parts) : parts_(parts) {}
  __device__ int Take() {
    const int taken = part_;
    part_ += kLanes;
    part_ = part_ >= parts_ && first_ < kLanes - 1 ? ++first_ : part_;
    return taken;
  }
  __device__ bool EndsLane(int part) const { return part + kLanes >= parts_; }

 private:
  int parts_;
  int part_ = 0;
  int first_ = 0;
};

// Some columns of a lane, four in a row each, and its sum of p.
template <int kFours>
struct LaneSum {
  float4 acc[kFours] = {};
  float p = 0;

  __device__ void Add(const float4 (&value)[kFours], float sum, float weight) {
    p = fmaf(sum, weight, p);
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      acc[j].x = fmaf(value[j].x, weight, acc[j].x);
      acc[j].y = fmaf(value[j].y, weight, acc[j].y);
      acc[j].z = fmaf(value[j].z, weight, acc[j].z);
      acc[j].w = fmaf(value[j].w, weight, acc[j].w);
    }
  }
  // Takes what another has, and leaves it empty.
  __device__ void Take(LaneSum& other) {
    p += other.p;
    other.p = 0;
#pragma unroll
    for (int j = 0; j < kFours; ++j) {
      acc[j].x += other.acc[j].x;
      acc[j].y += other.acc[j].y;
      acc[j].z += other.acc[j].z;
      acc[j].w += other.acc[j].w;
      other.acc[j] = {0, 0, 0, 0};
    }
  }
};

// The same for many queries: a warp joins a whole one, lane after lane, so that it needs the registers of one
// lane only.
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
  PartOrder order(parts);
  int index[kAtOnce];
  float2 ms[kAtOnce];
  float4 value[kAtOnce][kFours];
  const auto load = [&] {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      index[i] = order.Take();
      const bool valid = index[i] < parts;
      ms[i] = valid ? max_sum[index[i]] : float2{-INFINITY, 0};
#pragma unroll
      for (int j = 0; j < kFours; ++j) {
        const float* from = source + int64_t{index[i]} * p.acc_stride + j * kColumns;
        value[i][j] = valid ? *reinterpret_cast<const float4*>(from) : float4{0, 0, 0, 0};
      }
    }
  };
  load();
  const float m = LargestOfParts(max_sum, parts, thread);
  LaneSum<kFours> all;
  LaneSum<kFours> of_lane;
#pragma unroll 1
  for (int done = 0; done < parts; done += kAtOnce) {
    if (done > 0) {
      load();
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (index[i] < parts) {
        of_lane.Add(value[i], ms[i].y, exp2f(ms[i].x - m));
        if (order.EndsLane(index[i])) {
          all.Take(of_lane);
        }
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kFours; ++j) {
    Write(p, query, j * kColumns + thread * 4, all.acc[j], all.p, parts);
  }
}

}  // namespace

absl::Status LaunchJoinParts(const AttentionProblem& p, void* stream) {
  constexpr int64_t kManyQueries = 2048;
  const int64_t queries = int64_t{p.rows} * p.heads;
  if (p.latent == 512 && queries >= kManyQueries) {
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
