#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/tensor/dtype.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"

namespace arborist::kernels::cuda {

// What a warp holds of a row in registers: in step s lane l has the 8 ids from first + 256 s + 8 l. Ids
// beyond the vocabulary are -infinity and do not count as not finite.
inline constexpr int kTileSteps = 4;
inline constexpr int kStepIds = 256;
static_assert(kTileSteps * kStepIds == kTopKTile);

inline constexpr uint16_t kMinusInfinityBf16 = 0xff80;

__device__ inline float MinusInfinity() { return __uint_as_float(0xff800000u); }

__device__ inline float Widen(float value) { return value; }
__device__ inline float Widen(BFloat16 value) { return ToFloat(value); }

// Eight aligned values, read past the L1.
__device__ inline void LoadAligned(const BFloat16* from, float (&to)[8]) {
  const uint4 raw = __ldcg(reinterpret_cast<const uint4*>(from));
  const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    to[i] = __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000u);
  }
}
__device__ inline void LoadAligned(const float* from, float (&to)[8]) {
  const float4 low = __ldcg(reinterpret_cast<const float4*>(from));
  const float4 high = __ldcg(reinterpret_cast<const float4*>(from + 4));
  to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
  to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
}

// values[i] for an i that is not a constant; the values stay in registers.
template <typename Value>
__device__ inline Value SelectOf(const Value (&values)[8], int i) {
  Value selected = values[0];
#pragma unroll
  for (int j = 1; j < 8; ++j) {
    selected = i == j ? values[j] : selected;
  }
  return selected;
}

// A row of logits in memory.
template <typename Element>
struct LogitsRow {
  const Element* data;
  int32_t vocabulary;
  int32_t whole;  // tiles that start before this id can be loaded 16 bytes at a time

  __device__ LogitsRow(const LogitsView& logits, int64_t row)
      : data(static_cast<const Element*>(logits.data) + row * logits.row_stride),
        vocabulary(static_cast<int32_t>(logits.columns)),
        whole(reinterpret_cast<uintptr_t>(data) % 16 == 0 ? vocabulary - static_cast<int32_t>(kTopKTile) + 1
                                                          : 0) {}
  __device__ bool Whole(int32_t first) const { return first < whole; }
  // Eight ids of the tile that begins at `first`; -infinity beyond the vocabulary.
  __device__ void LoadEight(int32_t first, int32_t id, float (&to)[8]) const {
    if (Whole(first)) {
      LoadAligned(data + id, to);
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      to[i] = id + i < vocabulary ? Widen(data[id + i]) : MinusInfinity();
    }
  }
};

// NaN when a value of the tile, inside the vocabulary, is not finite; else 0. Of one lane in 32.
template <typename Element>
__device__ __noinline__ float ProbeGuarded(const Element* data, int32_t vocabulary, int32_t first) {
  float probe = 0;
  for (int32_t id = first + static_cast<int32_t>(threadIdx.x % 32);
       id < min(first + static_cast<int32_t>(kTopKTile), vocabulary); id += 32) {
    probe += Widen(data[id]) * 0.0f;
  }
  return probe;
}

__device__ inline int32_t StepId(int32_t first, int step) {
  return first + step * kStepIds + static_cast<int32_t>(threadIdx.x % 32) * 8;
}

// bf16 as stored: half the registers.
class PackedTile {
 public:
  __device__ void Load(const LogitsRow<BFloat16>& row, int32_t first) {
    if (row.Whole(first)) {
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
        raw_[step] = __ldcs(reinterpret_cast<const uint4*>(row.data + StepId(first, step)));
      }
      return;
    }
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
      raw_[step] = LoadGuarded(row.data, row.vocabulary, StepId(first, step));
    }
  }
  // NaN in *probe from the first value on that is not finite.
  __device__ void Probe(const LogitsRow<BFloat16>& row, int32_t first, float* probe) const {
    if (!row.Whole(first)) {
      *probe += ProbeGuarded(row.data, row.vocabulary, first);
      return;
    }
    const __nv_bfloat162 zero = __float2bfloat162_rn(0.0f);
    __nv_bfloat162 sum[2] = {zero, zero};
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        sum[word % 2] = __hfma2(Pair(step, word), zero, sum[word % 2]);
      }
    }
    const __nv_bfloat162 both = __hadd2(sum[0], sum[1]);
    *probe += __low2float(both) + __high2float(both);
  }
  // The largest of the lane's values.
  __device__ float Max() const {
    const __nv_bfloat162 max = __hmax2(__hmax2(StepMax(0), StepMax(1)), __hmax2(StepMax(2), StepMax(3)));
    return fmaxf(__low2float(max), __high2float(max));
  }
  // Of steps 0 and 1, or 2 and 3.
  __device__ float MaxOfHalf(int half) const {
    const __nv_bfloat162 max = __hmax2(StepMax(2 * half), StepMax(2 * half + 1));
    return fmaxf(__low2float(max), __high2float(max));
  }
  // The smallest; NaN is passed over.
  __device__ float Min() const {
    __nv_bfloat162 min = Pair(0, 0);
#pragma unroll
    for (int i = 1; i < 4 * kTileSteps; i += 3) {
      min = __hmin2(min, __hmin2(__hmin2(Pair(i / 4, i % 4), Pair((i + 1) / 4, (i + 1) % 4)),
                                 Pair((i + 2) / 4, (i + 2) % 4)));
    }
    return fminf(__low2float(min), __high2float(min));
  }
  __device__ float At(int step, int i) const {
    const uint32_t word = Word(step, i / 2);
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
  // The lane's values of a step that is not a constant.
  __device__ void SelectStep(int step, float (&values)[8]) const {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const uint32_t low = step == 0 ? Word(0, word) : Word(1, word);
      const uint32_t high = step == 2 ? Word(2, word) : Word(3, word);
      const uint32_t bits = step < 2 ? low : high;
      values[2 * word] = __uint_as_float(bits << 16);
      values[2 * word + 1] = __uint_as_float(bits & 0xffff0000u);
    }
  }

 private:
  static __device__ __noinline__ uint4 LoadGuarded(const BFloat16* data, int32_t vocabulary, int32_t id) {
    uint32_t bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bits[i] = id + i < vocabulary ? data[id + i].bits : kMinusInfinityBf16;
    }
    return make_uint4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16,
                      bits[6] | bits[7] << 16);
  }
  __device__ uint32_t Word(int step, int word) const {
    const uint4 raw = raw_[step];
    return word == 0 ? raw.x : word == 1 ? raw.y : word == 2 ? raw.z : raw.w;
  }
  __device__ __nv_bfloat162 Pair(int step, int word) const {
    const uint32_t bits = Word(step, word);
    return *reinterpret_cast<const __nv_bfloat162*>(&bits);
  }
  __device__ __nv_bfloat162 StepMax(int step) const {
    return __hmax2(__hmax2(Pair(step, 0), Pair(step, 1)), __hmax2(Pair(step, 2), Pair(step, 3)));
  }

  uint4 raw_[kTileSteps];
};

// fp32 as stored.
class FloatTile {
 public:
  __device__ void Load(const LogitsRow<float>& row, int32_t first) {
    if (row.Whole(first)) {
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
        LoadStreamed(row.data + StepId(first, step), value_[step]);
      }
      return;
    }
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
      const Eight guarded = LoadGuarded(row.data, row.vocabulary, StepId(first, step));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        value_[step][i] = guarded.value[i];
      }
    }
  }
  __device__ void Probe(const LogitsRow<float>& row, int32_t first, float* probe) const {
    if (!row.Whole(first)) {
      *probe += ProbeGuarded(row.data, row.vocabulary, first);
      return;
    }
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        *probe += value_[step][i] * 0.0f;
      }
    }
  }
  __device__ float Max() const {
    return fmaxf(fmaxf(MaxOfStep(0), MaxOfStep(1)), fmaxf(MaxOfStep(2), MaxOfStep(3)));
  }
  __device__ float MaxOfHalf(int half) const { return fmaxf(MaxOfStep(2 * half), MaxOfStep(2 * half + 1)); }
  __device__ float MaxOfStep(int step) const {
    float max = value_[step][0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      max = fmaxf(max, value_[step][i]);
    }
    return max;
  }
  __device__ float Min() const {
    float min = value_[0][0];
#pragma unroll
    for (int i = 1; i < 8 * kTileSteps; ++i) {
      min = fminf(min, value_[i / 8][i % 8]);
    }
    return min;
  }
  __device__ float At(int step, int i) const { return value_[step][i]; }
  __device__ void SelectStep(int step, float (&values)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float low = step == 0 ? value_[0][i] : value_[1][i];
      const float high = step == 2 ? value_[2][i] : value_[3][i];
      values[i] = step < 2 ? low : high;
    }
  }

 private:
  struct Eight {
    float value[8];
  };
  static __device__ __noinline__ Eight LoadGuarded(const float* data, int32_t vocabulary, int32_t id) {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      eight.value[i] = id + i < vocabulary ? data[id + i] : MinusInfinity();
    }
    return eight;
  }
  static __device__ void LoadStreamed(const float* from, float (&to)[8]) {
    const float4 low = __ldcs(reinterpret_cast<const float4*>(from));
    const float4 high = __ldcs(reinterpret_cast<const float4*>(from + 4));
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  }

  float value_[kTileSteps][8];
};

}  // namespace arborist::kernels::cuda
