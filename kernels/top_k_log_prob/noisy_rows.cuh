#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/logits_tile.cuh"
#include "kernels/top_k_log_prob/plain_rows.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"
#include "kernels/vocabulary_row/exp_sum.cuh"
#include "kernels/vocabulary_row/fast_gumbel.cuh"

namespace arborist::kernels::cuda {

// x as the contract has it, to the bit. Only what may be a candidate gets here.
__device__ __noinline__ inline float NoisyValue(float logit, float max, float temperature, uint32_t word) {
  return (logit - max) / temperature + GumbelOfWord(word);
}

// What is done with each tile of a row with noise. Every id's x is first worked out nearly, with the device's
// own logarithms and a reciprocal: that is what the sum takes. An id that may reach the threshold, by a
// margin of many times the error, is then worked out exactly.
template <typename Tile>
class NoisyRow {
 public:
  static constexpr KeyBits kBits = KeyBits::kAll;

  // max: the row's largest logit.
  __device__ NoisyRow(const TopKParams& params, int32_t position, float max, int32_t vocabulary)
      : max_(max),
        temperature_(params.temperature),
        reciprocal_(fminf(1.0f / params.temperature, FLT_MAX)),
        scale_(params.beta * kLog2OfE),
        position_(static_cast<uint32_t>(position)),
        sample_index_(params.sample_index),
        key0_(static_cast<uint32_t>(params.seed)),
        key1_(static_cast<uint32_t>(params.seed >> 32)),
        vocabulary_(vocabulary) {}

  // The launch before has looked at all logits.
  __device__ void Probe(const Tile& /*tile*/, int32_t /*first*/, float* /*probe*/) const {}

  // As of rows without noise; the lane's largest is one that no x of its ids exceeds.
  __device__ void Take(const Tile& tile, int32_t first, TopKTileSum* sum, uint16_t* largest_half) const {
    ExpSum own = {-FLT_MAX, 0.0f};
    float largest_of_half = -FLT_MAX;
#pragma unroll 1
    for (int s = 0; s < kTileSteps; ++s) {
      Step step;
      tile.SelectStep(s, step.logit);
      const float largest = Work(StepId(first, s), step);
      const float max = fmaxf(own.max, largest);
      float added = own.sum * FastExp2((own.max - max) * scale_);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        added += FastExp2((step.x[i] - max) * scale_);
      }
      own = {max, added};
      largest_of_half = s % 2 == 0 ? largest : fmaxf(largest_of_half, largest);
      if (s % 2 == 1) {
        largest_half[threadIdx.x % 32 * 2 + s / 2] =
            static_cast<uint16_t>(OrderKey(largest_of_half + kMargin) >> 16);
      }
    }
    const float max = MaxOfWarp(own.max);
    const float all = SumOfWarp(own.sum * FastExp2((own.max - max) * scale_));
    if (threadIdx.x % 32 == 0) {
      *sum = {max, all};
    }
  }

  // The best x of a lane with this half is at least this: the margin was added twice, and |y| <= |x| + 24.
  __device__ float Least(uint32_t half) const {
    const float largest = FloatOfKey(half << 16);
    const float least = largest - 3 * kMargin - 2 * kRelativeMargin * (fabsf(largest) + 24.0f);
    return AllExactly() ? MinusInfinity() : least;
  }

  // Turns logits into x, where they may reach `least`; bits of those that do.
  __device__ unsigned Reaching(int32_t id, float least, float (&x)[8]) const {
    Step step;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      step.logit[i] = x[i];
    }
    Work(id, step);
    unsigned may_reach = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      may_reach |= (step.upper[i] >= least - kMargin || AllExactly()) && id + i < vocabulary_ ? 1u << i : 0;
    }
    unsigned has = 0;
#pragma unroll 1
    for (; may_reach != 0; may_reach &= may_reach - 1) {
      const int i = __ffs(static_cast<int>(may_reach)) - 1;
      const float exact = NoisyValue(SelectOf(step.logit, i), max_, temperature_, SelectOf(step.word, i));
      has |= exact >= least ? 1u << i : 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        x[j] = i == j ? exact : x[j];
      }
    }
    return has;
  }

 private:
  // Far more than WithFastGumbel and the sum are off, and than the reciprocal is.
  static constexpr float kMargin = 1e-4f;
  static constexpr float kRelativeMargin = 1e-6f;
  // Below, a reciprocal will not do: every id is worked out exactly.
  static constexpr float kLeastTemperature = 1e-30f;

  __device__ bool AllExactly() const { return temperature_ < kLeastTemperature; }

  struct Step {
    float logit[8];
    uint32_t word[8];
    float x[8];      // nearly
    float upper[8];  // what the exact x does not exceed by more than kMargin
  };

  // The near x of eight ids from their logits. Returns the largest upper bound.
  __device__ float Work(int32_t id, Step& step) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t word[4] = {static_cast<uint32_t>(id) / 4 + static_cast<uint32_t>(half), position_,
                          sample_index_, 0};
      PhiloxInline(word, key0_, key1_);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        step.word[4 * half + i] = word[i];
      }
    }
    float largest = -FLT_MAX;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float y = fmaxf((step.logit[i] - max_) * reciprocal_, -FLT_MAX);
      step.x[i] = WithFastGumbel(y, step.word[i]);
      step.upper[i] = fmaf(fabsf(y), kRelativeMargin, step.x[i]);
      largest = fmaxf(largest, step.upper[i]);
    }
    return largest;
  }

  float max_;
  float temperature_;
  float reciprocal_;
  float scale_;
  uint32_t position_;
  uint32_t sample_index_;
  uint32_t key0_;
  uint32_t key1_;
  int32_t vocabulary_;
};

}  // namespace arborist::kernels::cuda
