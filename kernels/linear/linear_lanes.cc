#include "kernels/linear/linear_lanes.h"

#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

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

// acc[row][output] over k in [begin, end).
template <int kRows, int kOutputs, typename Weight>
inline void Accumulate(const float* const (&x)[kRows], const typename Weight::Element* weight, int64_t stride,
                       int64_t begin, int64_t end, Lanes16 (&acc)[kRows][kOutputs]) {
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kOutputs; ++n) {
      acc[r][n] = Lanes16::Zero();
    }
  }
  int64_t k = begin;
  for (; k + 16 <= end; k += 16) {
    Lanes16 w[kOutputs];
    for (int n = 0; n < kOutputs; ++n) {
      w[n] = Weight::Load(weight + n * stride + k);
    }
    for (int r = 0; r < kRows; ++r) {
      const Lanes16 v = Lanes16::Load(x[r] + k);
      for (int n = 0; n < kOutputs; ++n) {
        acc[r][n] = Fma(v, w[n], acc[r][n]);
      }
    }
  }
  if (k < end) {
    Lanes16 w[kOutputs];
    for (int n = 0; n < kOutputs; ++n) {
      w[n] = Weight::LoadPartial(weight + n * stride + k, end - k);
    }
    for (int r = 0; r < kRows; ++r) {
      const Lanes16 v = Lanes16::LoadPartial(x[r] + k, end - k);
      for (int n = 0; n < kOutputs; ++n) {
        acc[r][n] = Fma(v, w[n], acc[r][n]);
      }
    }
  }
}

template <int kRows, typename Weight>
void DotRows(const DotBlockArgs& args, int64_t row) {
  constexpr int kOutputs = TileOutputs(kRows);
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = args.x + (args.index != nullptr ? args.index[row + r] : row + r) * args.x_stride;
  }
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  float* out = args.out + row * args.out_stride;
  int64_t n = 0;
  for (; n + 8 <= args.outputs; n += 8) {
    Half8 half[kRows][8];
    for (int part = 0; part < 8; part += kOutputs) {
      Lanes16 acc[kRows][kOutputs];
      Accumulate<kRows, kOutputs, Weight>(x, weight + (n + part) * args.k, args.k, 0, args.k, acc);
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kOutputs; ++i) {
          half[r][part + i] = Fold(acc[r][i]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      Sum8(half[r], out + r * args.out_stride + n);
    }
  }
  for (; n < args.outputs; ++n) {
    Lanes16 acc[kRows][1];
    Accumulate<kRows, 1, Weight>(x, weight + n * args.k, args.k, 0, args.k, acc);
    for (int r = 0; r < kRows; ++r) {
      out[r * args.out_stride + n] = acc[r][0].Sum();
    }
  }
}

template <int kRows, typename Weight>
void SegmentRows(const DotSegmentsArgs& args, int64_t row) {
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = args.x + (row + r) * args.x_stride;
  }
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  for (int64_t n = 0; n < args.outputs; ++n) {
    Half8 half[kRows][8];
    for (int s = 0; s < args.segments; ++s) {
      Lanes16 acc[kRows][1];
      Accumulate<kRows, 1, Weight>(x, weight + n * args.k, args.k, args.bound[s], args.bound[s + 1], acc);
      for (int r = 0; r < kRows; ++r) {
        half[r][s] = Fold(acc[r][0]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int s = args.segments; s < 8; ++s) {
        half[r][s] = Half8{};
      }
      float p[8];
      Sum8(half[r], p);
      const int64_t place = args.index != nullptr ? args.index[row + r] : row + r;
      if (args.sums != nullptr) {
        float* sums = args.sums + place * args.sums_stride + n * 8;
        if (!args.finish) {
          const float scale = args.row_weight[row + r];
          for (int s = 0; s < 8; ++s) {
            sums[s] = __builtin_fmaf(scale, p[s], sums[s]);
          }
          continue;
        }
        for (int s = 0; s < 8; ++s) {
          p[s] = sums[s] + p[s];
        }
      }
      args.out[place * args.out_stride + n] = JoinSegments(p, args.segments);
    }
  }
}

template <typename Weight>
void DotBlockOf(const DotBlockArgs& args) {
  int64_t row = 0;
  for (; row + kTileRows <= args.rows; row += kTileRows) {
    DotRows<kTileRows, Weight>(args, row);
  }
  for (; row < args.rows; ++row) {
    DotRows<1, Weight>(args, row);
  }
}

template <typename Weight>
void DotSegmentsOf(const DotSegmentsArgs& args) {
  int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) {
    SegmentRows<4, Weight>(args, row);
  }
  for (; row < args.rows; ++row) {
    SegmentRows<1, Weight>(args, row);
  }
}

}  // namespace

void DotBlock(const DotBlockArgs& args) {
  switch (args.dtype) {
    case DType::kBF16:
      return DotBlockOf<BF16Weight>(args);
    case DType::kF16:
      return DotBlockOf<F16Weight>(args);
    default:
      return DotBlockOf<F32Weight>(args);
  }
}

void DotSegments(const DotSegmentsArgs& args) {
  switch (args.dtype) {
    case DType::kBF16:
      return DotSegmentsOf<BF16Weight>(args);
    case DType::kF16:
      return DotSegmentsOf<F16Weight>(args);
    default:
      return DotSegmentsOf<F32Weight>(args);
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
