#include <cuda_runtime.h>

#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/moe_route/moe_route.h"

// One warp a row. Lane l holds experts l, l+32, ... in registers as whole numbers that order like their
// choices, so that the largest of a warp is one instruction. Every floating-point step is that of the CPU
// version in its order, so weights are the same bits too.
namespace arborist::kernels::cuda {
namespace {

constexpr unsigned kWarp = 0xffffffffu;

// Orders like the float; 0 for what counts as taken (-inf, NaN). Both zeros are equal.
__device__ uint32_t OrderOf(float value) {
  if (!(value > -std::bit_cast<float>(0x7f800000u))) {
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

// scores[e] for the row; the lanes' own experts.
template <int kPerLane>
__device__ void Scores(const MoeRouteArgs& args, const float* logits, int experts, int lane, float* scores) {
  float value[kPerLane];
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    const int e = lane + 32 * v;
    value[v] = e < experts ? logits[e] : -std::bit_cast<float>(0x7f800000u);
  }
  if (args.scoring == RouteScoring::kSigmoid) {
#pragma unroll
    for (int v = 0; v < kPerLane; ++v) {
      if (lane + 32 * v < experts) {
        scores[lane + 32 * v] = 1.0f / (1.0f + ExpInline(-value[v]));
      }
    }
    __syncwarp();
    return;
  }
  float largest = value[0];
#pragma unroll
  for (int v = 1; v < kPerLane; ++v) {
    largest = largest < value[v] ? value[v] : largest;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kWarp, largest, distance);
    largest = largest < other ? other : largest;
  }
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    if (lane + 32 * v < experts) {
      value[v] = ExpInline(value[v] - largest);
      scores[lane + 32 * v] = value[v];
    }
  }
  __syncwarp();
  float sum = 0;  // in ascending id: every lane adds all of them
#pragma unroll 8
  for (int e = 0; e < experts; ++e) {
    sum += scores[e];
  }
  __syncwarp();
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    if (lane + 32 * v < experts) {
      scores[lane + 32 * v] = value[v] / sum;
    }
  }
  __syncwarp();
}

// Marks the kept groups: group[g] becomes 1, all others 0.
__device__ void KeepGroups(const MoeRouteArgs& args, const float* choice, int experts, int lane,
                           uint32_t* group) {
  constexpr uint32_t kKept = 0xffffffffu;  // no float is ordered so high
  const float minus_infinity = -std::bit_cast<float>(0x7f800000u);
  const int size = experts / args.groups;
  for (int g = lane; g < args.groups; g += 32) {
    float first = minus_infinity;
    float second = minus_infinity;
    for (int i = g * size; i < (g + 1) * size; ++i) {
      if (choice[i] > first) {
        second = first;
        first = choice[i];
      } else if (choice[i] > second) {
        second = choice[i];
      }
    }
    group[g] = OrderOf(args.group_score == RouteGroupScore::kTopTwoSum && size > 1 ? first + second : first);
  }
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
__global__ void __launch_bounds__(32) RouteRow(const __grid_constant__ MoeRouteArgs args) {
  __shared__ float scores[32 * kPerLane];
  __shared__ float choice[32 * kPerLane];  // then the scores of the chosen, in ascending id
  __shared__ uint32_t group[32 * kPerLane];
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = blockIdx.x;
  const int experts = static_cast<int>(args.logits.columns);
  Scores<kPerLane>(args, args.logits.data + row * args.logits.row_stride, experts, lane, scores);
  const bool masked = args.kept_groups < args.groups;
  uint32_t order[kPerLane] = {};
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    const int e = lane + 32 * v;
    if (e < experts) {
      const float value = args.bias.size != 0 ? scores[e] + args.bias.data[e] : scores[e];
      choice[e] = value;
      order[v] = OrderOf(value);
    }
  }
  if (masked) {
    __syncwarp();
    KeepGroups(args, choice, experts, lane, group);
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
  __syncwarp();
  for (int i = lane; i < missing; i += 32) {
    expert[i] = 0;
    choice[i] = scores[0];
  }
  int place = missing;
#pragma unroll
  for (int v = 0; v < kPerLane; ++v) {
    const bool mine = (chosen >> v & 1u) != 0;
    const unsigned lanes = __ballot_sync(kWarp, mine);
    if (mine) {
      const int at = place + __popc(lanes & ((1u << lane) - 1));
      expert[at] = lane + 32 * v;
      choice[at] = scores[lane + 32 * v];
    }
    place += __popc(lanes);
  }
  __syncwarp();
  float sum = 1e-20f;
  if (args.normalize) {
    for (int i = 0; i < args.top_k; ++i) {
      sum += choice[i];
    }
  }
  for (int i = lane; i < args.top_k; i += 32) {
    weight[i] = (args.normalize ? choice[i] / sum : choice[i]) * args.scaling;
  }
}

template <int kPerLane>
absl::Status Launch(const MoeRouteArgs& args, StreamView stream) {
  RouteRow<kPerLane>
      <<<static_cast<unsigned>(args.logits.rows), 32, 0, static_cast<cudaStream_t>(stream.cuda_stream)>>>(
          args);
  return LaunchStatus("moe_route");
}

}  // namespace

absl::Status MoeRoute(const MoeRouteArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMoeRoute(args));
  if (args.logits.rows == 0) {
    return absl::OkStatus();
  }
  if (args.logits.columns <= 64) {
    return Launch<2>(args, stream);
  }
  if (args.logits.columns <= 384) {
    return Launch<12>(args, stream);
  }
  return Launch<kMaxRoutedExperts / 32>(args, stream);
}

}  // namespace arborist::kernels::cuda
