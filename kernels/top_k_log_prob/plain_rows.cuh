#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {

// In all lanes; -0 comes as +0.
__device__ inline float MaxOfWarp(float value) {
  return FloatOfKey(__reduce_max_sync(kAllLanes, OrderKey(value)));
}

// In lane 0: the lanes' values in a fixed tree.
__device__ inline float SumOfWarp(float value) {
#pragma unroll
  for (unsigned offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(kAllLanes, value, offset);
  }
  return value;
}

// Products with the scale from here on are not used: differences come first.
inline constexpr float kLargeProduct = 0x1p100f;

// What is done with each tile of a row without noise, where x is the logit.
template <typename Tile, typename Element>
class PlainRow {
 public:
  // Which bits of a key the search for a threshold needs.
  static constexpr KeyBits kBits = sizeof(Element) == 2 ? KeyBits::kUpper : KeyBits::kAll;

  __device__ PlainRow(const TopKParams& params, const LogitsRow<Element>& logits)
      : scale_(params.beta * kLog2OfE), logits_(logits) {}

  // What an id of a lane whose largest has this upper half of its order key reaches at least.
  __device__ float Least(uint32_t half) const { return FloatOfKey(half << 16); }

  // Turns the logits of eight ids into x; bits of those that reach `least`.
  __device__ unsigned Reaching(int32_t /*id*/, float least, float (&x)[8]) const {
    unsigned has = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      has |= x[i] >= least ? 1u << i : 0;
    }
    return has;
  }

  // NaN in *probe when an id is -infinity. NaN and +infinity make the tile's sum NaN.
  __device__ void Probe(const Tile& tile, int32_t first, float* probe) const {
    if (logits_.Whole(first)) {
      *probe = tile.Min() == MinusInfinity() ? MinusInfinity() * 0.0f : *probe;
    } else {
      *probe += ProbeGuarded(logits_.data, logits_.vocabulary, first);
    }
  }

  // Adds the exponentials, and writes the upper half of the order key of each lane's largest value.
  __device__ void Take(const Tile& tile, int32_t /*first*/, TopKTileSum* sum, uint16_t* largest_half) const {
    const uint32_t low = OrderKey(tile.MaxOfHalf(0));
    const uint32_t high = OrderKey(tile.MaxOfHalf(1));
    reinterpret_cast<uint32_t*>(largest_half)[threadIdx.x % 32] = low >> 16 | (high & 0xffff0000u);
    WriteSum(tile, FloatOfKey(__reduce_max_sync(kAllLanes, max(low, high))), sum);
  }

 private:
  // Of exp2((x - max) * scale), as one product and difference where both are of ordinary size.
  __device__ void WriteSum(const Tile& tile, float max, TopKTileSum* sum) const {
    const float shift = max * scale_;
    float own = 0;
    if (fabsf(shift) < kLargeProduct) {
      float step_sum[kTileSteps];
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
        step_sum[step] = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          step_sum[step] += FastExp2(fmaf(tile.At(step, i), scale_, -shift));
        }
      }
      own = (step_sum[0] + step_sum[1]) + (step_sum[2] + step_sum[3]);
    } else {
#pragma unroll 1
      for (int step = 0; step < kTileSteps; ++step) {
        float value[8];
        tile.SelectStep(step, value);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          own += FastExp2((value[i] - max) * scale_);
        }
      }
    }
    own = SumOfWarp(own);
    if (threadIdx.x % 32 == 0) {
      *sum = {max, own};
    }
  }

  float scale_;
  LogitsRow<Element> logits_;
};

// The power of two that turns a tile's sum into one relative to the row's largest x. `rounded`: the tile's
// exponents were taken relative to the rounded product of its largest logit and the scale.
__device__ inline float ShiftOfTile(float tile_max, float max, float scale, bool rounded) {
  const float shift = tile_max * scale;
  return rounded && fabsf(shift) < kLargeProduct ? fmaf(-max, scale, shift) : (tile_max - max) * scale;
}

}  // namespace arborist::kernels::cuda
