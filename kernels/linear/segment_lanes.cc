#include "kernels/linear/dot_tile.h"
#include "kernels/linear/linear_lanes.h"
#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

// A segment is so short that joining its lanes costs more than its products: a panel of widened weights would
// not pay. Segments side by side, each padded with zeros to whole steps of 16 lanes.
struct PaddedSegments {
  explicit PaddedSegments(const DotSegmentsArgs& args) {
    for (int s = 0; s < args.segments; ++s) {
      const int64_t count = args.bound[s + 1] - args.bound[s];
      begin[s + 1] = begin[s] + (count + 15) / 16 * 16;
      padding = padding || begin[s + 1] != args.bound[s + 1];
    }
  }
  int64_t begin[9] = {};
  bool padding = false;
};
constexpr int64_t kPaddedInputs = kPanelInputs + 8 * 16;

// What becomes of the partial sums p [outputs, 8] of one row: see DotSegmentsArgs.
inline void Finish(const DotSegmentsArgs& args, int64_t row, int64_t n, int64_t outputs, float* p) {
  const int64_t place = args.index != nullptr ? args.index[row] : row;
  if (args.sums != nullptr) {
    float* sums = args.sums + place * args.sums_stride + n * 8;
    if (!args.finish) {
      const Lanes16 scale = Lanes16::Broadcast(args.row_weight[row]);
      int64_t i = 0;
      for (; i + 16 <= outputs * 8; i += 16) {
        Fma(scale, Lanes16::Load(p + i), Lanes16::Load(sums + i)).Store(sums + i);
      }
      for (; i < outputs * 8; ++i) {
        sums[i] = __builtin_fmaf(args.row_weight[row], p[i], sums[i]);
      }
      return;
    }
    for (int64_t i = 0; i < outputs * 8; ++i) {
      p[i] = sums[i] + p[i];
    }
  }
  float* out = args.out + place * args.out_stride + n;
  if (outputs == kGroup && args.segments == 8) {
    JoinPairs8(p, out);
    return;
  }
  for (int64_t i = 0; i < outputs; ++i) {
    out[i] = JoinSegments(p + i * 8, args.segments);
  }
}

// Copies rows with their segments padded.
inline void PadRows(const DotSegmentsArgs& args, const PaddedSegments& padded, int64_t row, int64_t rows,
                    int64_t stride, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int s = 0; s < args.segments; ++s) {
      WidenRow<F32Weight>(args.x + (row + r) * args.x_stride + args.bound[s],
                          args.bound[s + 1] - args.bound[s], 0, out + r * stride + padded.begin[s]);
    }
  }
}

// acc = the lanes of one segment, whose weights end `readable` elements after `weight`.
template <typename Weight>
inline Lanes16 SegmentLanes(const float* x, const typename Weight::Element* weight, int64_t count,
                            int64_t readable) {
  Lanes16 acc = Lanes16::Zero();
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
    acc = Fma(Lanes16::Load(x + k), Weight::Load(weight + k), acc);
  }
  if (k < count) {
    acc = Fma(Lanes16::LoadPartial(x + k, count - k), LoadHead<Weight>(weight + k, count - k, readable - k),
              acc);
  }
  return acc;
}

// Any segments, one row.
template <typename Weight>
void AnySegments(const DotSegmentsArgs& args, int64_t row, int64_t n, Half8 (&half)[8]) {
  const float* x = args.x + row * args.x_stride;
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight) + n * args.k;
  for (int s = 0; s < args.segments; ++s) {
    const int64_t begin = args.bound[s];
    half[s] = Fold(SegmentLanes<Weight>(x + begin, weight + begin, args.bound[s + 1] - begin,
                                        (args.outputs - n) * args.k + args.past - begin));
  }
}

// Eight segments of `steps` whole steps and, if kTail, one of `tail` inputs. Rows x have their segments
// padded to `padded` inputs.
template <typename Weight, int kRows, bool kTail>
inline void EqualSegments(const float* const (&x)[kRows], const typename Weight::Element* weight,
                          int64_t steps, int64_t tail, int64_t padded, Half8 (&half)[kRows][8]) {
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    const auto* w = weight + s * (16 * steps + (kTail ? tail : 0));
    Lanes16 acc[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      acc[r] = Lanes16::Zero();
    }
    for (int64_t k = 0; k < 16 * steps; k += 16) {
      const Lanes16 v = Weight::Load(w + k);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        acc[r] = Fma(Lanes16::Load(x[r] + s * padded + k), v, acc[r]);
      }
    }
    if constexpr (kTail) {
      const Lanes16 v = KeepFirst(Weight::Load(w + 16 * steps), tail);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        acc[r] = Fma(Lanes16::Load(x[r] + s * padded + 16 * steps), v, acc[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      half[r][s] = Fold(acc[r]);
    }
  }
}

inline void FetchAhead(const void* memory, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(static_cast<const char*>(memory) + kFetchBytes + at);
  }
}

template <typename Weight, int kRows>
void SegmentRows(const DotSegmentsArgs& args, const PaddedSegments& padded, int64_t row) {
  alignas(64) float copy[kRows * kPaddedInputs];
  const bool equal = args.segments == 8 && args.k % 8 == 0 && args.k <= kPanelInputs;
  const int64_t inputs = padded.begin[args.segments];
  const float* x[kRows];
  if (equal && padded.padding) {
    PadRows(args, padded, row, kRows, inputs, copy);
  }
  for (int r = 0; r < kRows; ++r) {
    x[r] = equal && padded.padding ? copy + r * inputs : args.x + (row + r) * args.x_stride;
  }
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  const int64_t steps = args.k / 8 / 16;
  const int64_t tail = args.k / 8 % 16;
  for (int64_t n = 0; n < args.outputs; n += kGroup) {
    const int64_t outputs = args.outputs - n < kGroup ? args.outputs - n : kGroup;
    float p[kRows][kGroup * 8];
    for (int64_t i = 0; i < outputs; ++i) {
      Half8 half[kRows][8];
      FetchAhead(weight + (n + i) * args.k, args.k * static_cast<int64_t>(sizeof(*weight)));
      if (equal && tail == 0) {
        EqualSegments<Weight, kRows, false>(x, weight + (n + i) * args.k, steps, 0, inputs / 8, half);
      } else if (equal && (args.outputs - n - i - 1) * args.k + args.past >=
                              16) {  // the last step reads into the next row
        EqualSegments<Weight, kRows, true>(x, weight + (n + i) * args.k, steps, tail, inputs / 8, half);
      } else {
        for (int r = 0; r < kRows; ++r) {
          for (int s = args.segments; s < 8; ++s) {
            half[r][s] = Half8{};
          }
          AnySegments<Weight>(args, row + r, n + i, half[r]);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        Sum8(half[r], p[r] + i * 8);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      Finish(args, row + r, n, outputs, p[r]);
    }
  }
}

}  // namespace

void DotSegments(const DotSegmentsArgs& args) {
  const PaddedSegments padded(args);
  ForWeightType(args.dtype, [&](auto type) {
    using Weight = decltype(type);
    ForRowTiles<(kTileRows < 4 ? kTileRows : 4)>(0, args.rows, [&](auto tile, int64_t row) {
      SegmentRows<Weight, decltype(tile)::value>(args, padded, row);
    });
  });
}

}  // namespace arborist::kernels::ARBORIST_ISA
