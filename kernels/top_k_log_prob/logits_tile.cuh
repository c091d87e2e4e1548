#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/tensor/dtype.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels::cuda {

// What a block of 256 threads holds of a row in registers: in step s thread t has the 8 ids from
// first + 2048 s + 8 t. Ids beyond the vocabulary are -infinity and do not count as not finite.
inline constexpr int kTileSteps = 4;
inline constexpr int kStepIds = 2048;
inline constexpr int kTileIds = kTileSteps * kStepIds;

inline constexpr uint16_t kMinusInfinityBf16 = 0xff80;

__device__ inline float MinusInfinity() { return __uint_as_float(0xff800000u); }

// A row of logits in memory. `aligned`: 16-byte loads are allowed at every multiple of 8 ids.
template <typename Element>
struct LogitsRow {
  const Element* data;
  int64_t vocabulary;
  bool aligned;

  __device__ LogitsRow(const LogitsView& logits, int64_t row)
      : data(static_cast<const Element*>(logits.data) + row * logits.row_stride),
        vocabulary(logits.columns),
        aligned(reinterpret_cast<uintptr_t>(data) % 16 == 0) {}
  // A tile that starts here is inside the row and can be loaded 16 bytes at a time.
  __device__ bool Whole(int64_t first) const;
};

__device__ inline int64_t StepId(int64_t first, int step) {
  return first + step * kStepIds + static_cast<int64_t>(threadIdx.x) * 8;
}

template <typename Element>
__device__ inline bool LogitsRow<Element>::Whole(int64_t first) const {
  return aligned && first + kTileIds <= vocabulary;
}

// bf16 as stored: half the registers.
class PackedTile {
 public:
  __device__ void Load(const LogitsRow<BFloat16>& row, int64_t first) {
    if (row.Whole(first)) {
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
        raw_[step] = __ldcs(reinterpret_cast<const uint4*>(row.data + StepId(first, step)));
      }
      return;
    }
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
      raw_[step] = LoadGuarded(row, StepId(first, step));
    }
  }
  // NaN in *probe from the first value on that is not finite.
  __device__ void Probe(const LogitsRow<BFloat16>& row, int64_t first, float* probe) const {
    if (row.Whole(first)) {
      __nv_bfloat162 sum = __float2bfloat162_rn(0.0f);
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          sum = __hfma2(Pair(step, word), __float2bfloat162_rn(0.0f), sum);
        }
      }
      *probe += __low2float(sum) + __high2float(sum);
      return;
    }
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        *probe += StepId(first, step) + i < row.vocabulary ? At(step, i) * 0.0f : 0.0f;
      }
    }
  }
  __device__ float Max() const {
    __nv_bfloat162 max = StepMax(0);
#pragma unroll
    for (int step = 1; step < kTileSteps; ++step) {
      max = __hmax2(max, StepMax(step));
    }
    return fmaxf(__low2float(max), __high2float(max));
  }
  __device__ float MaxOfStep(int step) const {
    const __nv_bfloat162 max = StepMax(step);
    return fmaxf(__low2float(max), __high2float(max));
  }
  __device__ float At(int step, int i) const {
    const uint32_t word = Word(step, i / 2);
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }

 private:
  static __device__ uint4 LoadGuarded(const LogitsRow<BFloat16>& row, int64_t id) {
    uint32_t bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bits[i] = id + i < row.vocabulary ? row.data[id + i].bits : kMinusInfinityBf16;
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
    return __halves2bfloat162(__ushort_as_bfloat16(static_cast<uint16_t>(bits)),
                              __ushort_as_bfloat16(static_cast<uint16_t>(bits >> 16)));
  }
  __device__ __nv_bfloat162 StepMax(int step) const {
    return __hmax2(__hmax2(Pair(step, 0), Pair(step, 1)), __hmax2(Pair(step, 2), Pair(step, 3)));
  }

  uint4 raw_[kTileSteps];
};

// fp32 values: logits, or logits with noise.
class FloatTile {
 public:
  template <typename Element>
  __device__ void Load(const LogitsRow<Element>& row, int64_t first) {
    if (row.Whole(first)) {
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
        LoadAligned(row.data + StepId(first, step), value_[step]);
      }
      return;
    }
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
      const int64_t id = StepId(first, step);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        value_[step][i] = id + i < row.vocabulary ? Widen(row.data[id + i]) : MinusInfinity();
      }
    }
  }
  template <typename Element>
  __device__ void Probe(const LogitsRow<Element>& row, int64_t first, float* probe) const {
    const bool whole = row.Whole(first);
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        *probe += whole || StepId(first, step) + i < row.vocabulary ? value_[step][i] * 0.0f : 0.0f;
      }
    }
  }
  // value = (value - max) / temperature + noise.
  __device__ void AddNoise(const TopKParams& params, int32_t position, float max, int64_t first,
                           int64_t vocabulary) {
#pragma unroll 1
    for (int step = 0; step < kTileSteps; ++step) {
      float noisy[8];
      const auto id = static_cast<uint32_t>(StepId(first, step));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t word[4] = {id / 4 + static_cast<uint32_t>(half), static_cast<uint32_t>(position),
                            params.sample_index, 0};
        PhiloxInline(word, static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          noisy[4 * half + i] = GumbelOfWord(word[i]);
        }
      }
      // Selected by constants, so that the values stay in registers.
#pragma unroll
      for (int s = 0; s < kTileSteps; ++s) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (s == step) {
            value_[s][i] = (value_[s][i] - max) / params.temperature + noisy[i];
          }
        }
      }
    }
  }
  __device__ float Max() const {
    float max = MaxOfStep(0);
#pragma unroll
    for (int step = 1; step < kTileSteps; ++step) {
      max = fmaxf(max, MaxOfStep(step));
    }
    return max;
  }
  __device__ float MaxOfStep(int step) const {
    float max = value_[step][0];
#pragma unroll
    for (int i = 1; i < 8; ++i) {
      max = fmaxf(max, value_[step][i]);
    }
    return max;
  }
  __device__ float At(int step, int i) const { return value_[step][i]; }

 private:
  static __device__ float Widen(float value) { return value; }
  static __device__ float Widen(BFloat16 value) { return ToFloat(value); }
  static __device__ void LoadAligned(const float* from, float (&to)[8]) {
    const float4 low = __ldcs(reinterpret_cast<const float4*>(from));
    const float4 high = __ldcs(reinterpret_cast<const float4*>(from + 4));
    to[0] = low.x, to[1] = low.y, to[2] = low.z, to[3] = low.w;
    to[4] = high.x, to[5] = high.y, to[6] = high.z, to[7] = high.w;
  }
  static __device__ void LoadAligned(const BFloat16* from, float (&to)[8]) {
    const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(from));
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[2 * i] = __uint_as_float(word[i] << 16);
      to[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
    }
  }

  float value_[kTileSteps][8];
};

}  // namespace arborist::kernels::cuda
