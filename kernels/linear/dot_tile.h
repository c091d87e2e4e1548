#pragma once

#include <cstdint>

#include "kernels/linear/linear_lanes.h"
#include "lanes.h"

// The pieces of linear_lanes.cc and segment_lanes.cc, for one instruction set. Two ways to the same bits:
// few rows read stored weights and widen them on the way (Accumulate); more rows share a panel of widened
// weights (WidenRow, Tile).
namespace arborist::kernels::ARBORIST_ISA {

struct F32Weight {
  using Element = float;
  static Lanes16 Load(const float* p) { return Lanes16::Load(p); }
  static Lanes16 LoadPartial(const float* p, int64_t count) { return Lanes16::LoadPartial(p, count); }
};
struct BF16Weight {
  using Element = uint16_t;
  static Lanes16 Load(const uint16_t* p) { return Lanes16::LoadBf16(p); }
  static Lanes16 LoadPartial(const uint16_t* p, int64_t count) { return Lanes16::LoadPartialBf16(p, count); }
};
struct F16Weight {
  using Element = uint16_t;
  static Lanes16 Load(const uint16_t* p) { return Lanes16::LoadF16(p); }
  static Lanes16 LoadPartial(const uint16_t* p, int64_t count) { return Lanes16::LoadPartialF16(p, count); }
};

// Calls run(weight type) for a stored type.
template <typename Run>
inline void ForWeightType(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::kBF16:
      return run(BF16Weight{});
    case DType::kF16:
      return run(F16Weight{});
    default:
      return run(F32Weight{});
  }
}

// How far ahead of its use a weight is fetched: a pass over few rows waits for memory, not for arithmetic.
inline constexpr int64_t kFetchBytes = 4096;

// acc[row][output] = the lanes of rows x and outputs weight + n * stride over k in [0, count).
template <typename Weight, int kRows, int kOutputs>
inline void Accumulate(const float* const (&x)[kRows], const typename Weight::Element* weight, int64_t stride,
                       int64_t count, Lanes16 (&acc)[kRows][kOutputs]) {
#pragma GCC unroll 8
  for (int n = 0; n < kOutputs; ++n) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      acc[r][n] = Lanes16::Zero();
    }
  }
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) {
      const auto* p = weight + n * stride + k;
      __builtin_prefetch(reinterpret_cast<const char*>(p) + kFetchBytes);
      const Lanes16 w = Weight::Load(p);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r][n] = Fma(Lanes16::Load(x[r] + k), w, acc[r][n]);
      }
    }
  }
  if (k < count) {
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) {
      const Lanes16 w = Weight::LoadPartial(weight + n * stride + k, count - k);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        acc[r][n] = Fma(Lanes16::LoadPartial(x[r] + k, count - k), w, acc[r][n]);
      }
    }
  }
}

// 16 weights of which the first `count` (1..15) are wanted and the others become zeros. Reads neighbours
// where `readable` elements allow it: that is much faster than picking elements.
template <typename Weight>
inline Lanes16 LoadHead(const typename Weight::Element* weight, int64_t count, int64_t readable) {
  return readable >= 16 ? KeepFirst(Weight::Load(weight), count) : Weight::LoadPartial(weight, count);
}

// out[0, RoundUp(count, 16)) = the stored weights, widened; zeros past the end.
template <typename Weight>
inline void WidenRow(const typename Weight::Element* weight, int64_t count, int64_t readable, float* out) {
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
    __builtin_prefetch(reinterpret_cast<const char*>(weight + k) + kFetchBytes);
    Weight::Load(weight + k).Store(out + k);
  }
  if (k < count) {
    LoadHead<Weight>(weight + k, count - k, readable - k).Store(out + k);
  }
}

// half[row * row_step + output * output_step] over k in [0, count) of a widened panel, whose output n begins
// at panel + n * stride. Chunk by chunk of the 16 lanes, so that the accumulators stay in registers.
template <int kRows, int kOutputs>
inline void Tile(const float* const (&x)[kRows], const float* panel, int64_t stride, int64_t count,
                 Half8* half, int64_t row_step, int64_t output_step) {
  Chunk acc[kChunks][kRows][kOutputs];
#pragma GCC unroll 2
  for (int c = 0; c < kChunks; ++c) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int n = 0; n < kOutputs; ++n) {
        acc[c][r][n] = Chunk::Zero();
      }
    }
    int64_t k = c * kChunkLanes;
    for (; k + (16 - c * kChunkLanes) <= count; k += 16) {
      Chunk v[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        v[r] = Chunk::Load(x[r] + k);
      }
#pragma GCC unroll 8
      for (int n = 0; n < kOutputs; ++n) {
        const Chunk w = Chunk::Load(panel + n * stride + k);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          acc[c][r][n] = Fma(v[r], w, acc[c][r][n]);
        }
      }
    }
    if (count % 16 != 0) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Chunk v = Chunk::LoadPartial(x[r] + k, count - k);
#pragma GCC unroll 8
        for (int n = 0; n < kOutputs; ++n) {
          acc[c][r][n] = Fma(v, Chunk::Load(panel + n * stride + k), acc[c][r][n]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) {
      Chunk lanes[kChunks];
#pragma GCC unroll 2
      for (int c = 0; c < kChunks; ++c) {
        lanes[c] = acc[c][r][n];
      }
      half[r * row_step + n * output_step] = Fold(lanes);
    }
  }
}

// A number of rows as a type.
template <int kCount>
struct Count {
  static constexpr int value = kCount;
};

// Calls run(Count<n>, first row) for tiles of at most kRows rows that cover [0, rows).
template <int kRows, typename Run>
inline void ForRowTiles(int64_t first, int64_t rows, const Run& run) {
  for (; first + kRows <= rows; first += kRows) {
    run(Count<kRows>{}, first);
  }
  if constexpr (kRows > 1) {
    if (first < rows) {
      ForRowTiles<kRows - 1>(first, rows, run);
    }
  }
}

// Inputs that a panel of widened weights has room for, on the stack of its thread; longer rows take the way
// of few rows.
inline constexpr int64_t kPanelInputs = 4096;
// Outputs of a panel.
inline constexpr int64_t kGroup = 8;
// From this many rows on a panel pays. Plain C++ has no registers to fill.
inline constexpr bool kPanels = kTileRows > 1;
inline constexpr int64_t kPanelRows = 4;

}  // namespace arborist::kernels::ARBORIST_ISA
