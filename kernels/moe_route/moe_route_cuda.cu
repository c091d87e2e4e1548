#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/moe_route/moe_route.h"

// One block a row: a thread computes one expert's score; then the first warp chooses. There, lane l holds
// experts l, l + 32, ... as whole numbers that order like their choices, so that the largest of a warp is one
// instruction. Every floating-point step is that of the CPU version in its order, so weights are the same
// bits.
namespace arborist::kernels::cuda {
namespace {

constexpr unsigned kWarp = 0xffffffffu;
constexpr float kMinusInfinity = -std::bit_cast<float>(0x7f800000u);

// Orders like the float; 0 for what counts as taken (-inf, NaN). Both zeros are equal.
__device__ uint32_t OrderOf(float value) {
  if (!(value > kMinusInfinity)) {
    return 0;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The lowest index of the largest order over all lanes; -1 if all are 0.
__device__ int LargestOfWarp(uint32_t order, int index) {
  const uint32_t largest = __reduce_max_sync(kWarp, order);
  const unsigned at = __reduce_min_sync(kWarp, order == largest ? static_cast<unsigned>(index) : kWarp);
  return largest == 0 ? -1 : static_cast<int>(at);
}

// The score of expert `e`, the thread's own, of all threads' experts; also in scores[e], after the next
// barrier.
__device__ float Score(const MoeRouteArgs& args, float logit, int e, int experts, float* scores) {
  if (args.scoring == RouteScoring::kSigmoid) {
    const float score = 1.0f / (1.0f + ExpInline(-logit));
    if (e < experts) {
      scores[e] = score;
    }
    return score;
  }
  __shared__ float warp_largest[32];
  float largest = logit;
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kWarp, largest, distance);
    largest = largest < other ? other : largest;
  }
  if (e % 32 == 0) {
    warp_largest[e / 32] = largest;
  }
  __syncthreads();
  largest = warp_largest[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / 32; ++w) {
    largest = largest < warp_largest[w] ? warp_largest[w] : largest;
  }
  const float power = ExpInline(logit - largest);
  if (e < experts) {
    scores[e] = power;
  }
  __syncthreads();
  float sum = 0;  // in ascending id: every thread adds all of them
#pragma unroll 8
  for (int i = 0; i < experts; ++i) {
    sum += scores[i];
  }
  __syncthreads();
  if (e < experts) {
    scores[e] = power / sum;
  }
  return power / sum;
}

// The float that OrderOf made `order` from.
__device__ float ValueOf(uint32_t order) {
  return order == 0 ? kMinusInfinity
                    : std::bit_cast<float>((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

// group[g] for the warps' groups in turn: how the sum of its two largest choices, or its largest, orders.
__device__ void RankGroups(const MoeRouteArgs& args, const uint32_t* order, int experts, uint32_t* group) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int size = experts / args.groups;
  const bool two = args.group_score == RouteGroupScore::kTopTwoSum && size > 1;
  for (int g = static_cast<int>(threadIdx.x) / 32; g < args.groups; g += static_cast<int>(blockDim.x) / 32) {
    uint32_t first = 0;
    uint32_t second = 0;
    for (int i = lane; i < size; i += 32) {
      const uint32_t value = order[g * size + i];
      second = max(second, min(first, value));
      first = max(first, value);
    }
    const uint32_t largest = __reduce_max_sync(kWarp, first);
    // One lane gives its largest up; what is left holds the second of all.
    const unsigned holders = __ballot_sync(kWarp, first == largest);
    const uint32_t rest =
        __reduce_max_sync(kWarp, lane == __ffs(static_cast<int>(holders)) - 1 ? second : first);
    if (lane == 0) {
      group[g] = two ? OrderOf(ValueOf(largest) + ValueOf(rest)) : largest;
    }
  }
}

// Marks the kept groups: group[g] becomes 1, all others 0. One warp.
__device__ void KeepGroups(const MoeRouteArgs& args, int lane, uint32_t* group) {
  constexpr uint32_t kKept = 0xffffffffu;  // no float is ordered so high
  for (int i = 0; i < args.kept_groups; ++i) {
    uint32_t order = 0;
    int at = 0;
    for (int g = lane; g < args.groups; g += 32) {
      if (group[g] != kKept && group[g] > order) {
        order = group[g];
        at = g;
      }
    }
    const int best = LargestOfWarp(order, at);
    if (best < 0) {
      break;
    }
    if (best % 32 == lane) {
      group[best] = kKept;
    }
  }
  for (int g = lane; g < args.groups; g += 32) {
    group[g] = group[g] == kKept ? 1 : 0;
  }
  __syncwarp();
}

// The top_k largest choices, taken one by one. Returns which of the lane's experts were chosen, bit v for
// expert lane + 32 v, and counts those that could not be chosen (everything left was NaN or -inf).
template <int kPerLane>
__device__ uint32_t ChooseExperts(uint32_t (&order)[kPerLane], int top_k, int lane, int* missing) {
  uint32_t chosen = 0;
  for (int i = 0; i < top_k; ++i) {
    uint32_t largest = order[0];
    int at = 0;
#pragma unroll
    for (int v = 1; v < kPerLane; ++v) {
      if (order[v] > largest) {
        largest = order[v];
        at = v;
      }
    }
    const int best = LargestOfWarp(largest, lane + 32 * at);
    if (best < 0) {
      *missing = top_k - i;
      break;
    }
    if (best % 32 == lane) {
      chosen |= 1u << (best / 32);
#pragma unroll
      for (int v = 0; v < kPerLane; ++v) {
        order[v] = v == best / 32 ? 0 : order[v];
      }
    }
  }
  return chosen;
}

template <int kPerLane>
__global__ void __launch_bounds__(32 * kPerLane) RouteRow(const __grid_constant__ MoeRouteArgs args) {
  LetNextKernelStart();
  WaitForKernelBefore();
  __shared__ float scores[32 * kPerLane];
  __shared__ float chosen_score[32 * kPerLane];  // in ascending id
  __shared__ uint32_t order_of[32 * kPerLane];
  __shared__ uint32_t group[32 * kPerLane];
  const int tid = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int experts = static_cast<int>(args.logits.columns);
  const float logit = tid < experts ? args.logits.data[row * args.logits.row_stride + tid] : kMinusInfinity;
  const bool biased = tid < experts && args.bias.size != 0;
  const float bias = biased ? args.bias.data[tid] : 0.0f;
  const float score = Score(args, logit, tid, experts, scores);
  order_of[tid] = tid < experts ? OrderOf(biased ? score + bias : score) : 0;
  __syncthreads();
  const bool masked = args.kept_groups < args.groups;
  if (masked) {
    RankGroups(args, order_of, experts, group);
    __syncthreads();
  }
  if (tid >= 32) {
    return;
  }
  const int lane = tid;
  uint32_t order[kPerLane];
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    order[v] = order_of[lane + 32 * v];
  }
  if (masked) {
    KeepGroups(args, lane, group);
    const int size = experts / args.groups;
#pragma unroll
    for (int v = 0; v < kPerLane; ++v) {
      if (lane + 32 * v < experts && group[(lane + 32 * v) / size] == 0) {
        order[v] = 0;
      }
    }
  }
  int missing = 0;
  const uint32_t chosen = ChooseExperts(order, args.top_k, lane, &missing);
  // Where nothing was left to choose it is expert 0, which then stands first.
  int32_t* expert = args.expert.data + row * args.expert.row_stride;
  float* weight = args.weight.data + row * args.weight.row_stride;
  for (int i = lane; i < missing; i += 32) {
    expert[i] = 0;
    chosen_score[i] = scores[0];
  }
  int place = missing;
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    const bool mine = (chosen >> v & 1u) != 0;
    const unsigned lanes = __ballot_sync(kWarp, mine);
    if (mine) {
      const int at = place + __popc(lanes & ((1u << lane) - 1));
      expert[at] = lane + 32 * v;
      chosen_score[at] = scores[lane + 32 * v];
    }
    place += __popc(lanes);
  }
  __syncwarp();
  float sum = 1e-20f;
  if (args.normalize) {
    for (int i = 0; i < args.top_k; ++i) {
      sum += chosen_score[i];
    }
  }
  for (int i = lane; i < args.top_k; i += 32) {
    weight[i] = (args.normalize ? chosen_score[i] / sum : chosen_score[i]) * args.scaling;
  }
}

template <int kPerLane>
absl::Status Launch(const MoeRouteArgs& args, StreamView stream) {
  return LaunchOverlapped("moe_route", RouteRow<kPerLane>,
                          {.grid = static_cast<unsigned>(args.logits.rows), .block = 32 * kPerLane},
                          stream.cuda_stream, args);
}

}  // namespace

absl::Status MoeRoute(const MoeRouteArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMoeRoute(args));
  if (args.logits.rows == 0) {
    return absl::OkStatus();
  }
  if (args.logits.columns <= 32) {
    return Launch<1>(args, stream);
  }
  if (args.logits.columns <= 64) {
    return Launch<2>(args, stream);
  }
  if (args.logits.columns <= 256) {
    return Launch<8>(args, stream);
  }
  if (args.logits.columns <= 384) {
    return Launch<12>(args, stream);
  }
  return Launch<kMaxRoutedExperts / 32>(args, stream);
}

}  // namespace arborist::kernels::cuda
