#include "kernels/linear/dot_tile.h"
#include "kernels/linear/linear_lanes.h"
#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

// Segments side by side, each padded with zeros to whole steps of 16 lanes.
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

// acc = the lanes of one segment, whose weights end `readable` elements after `weight`. A step that is not
// full reads neighbours where it may, and makes them zeros.
template <typename Weight>
inline Lanes16 SegmentLanes(const float* x, const typename Weight::Element* weight, int64_t count,
                            int64_t readable) {
  Lanes16 acc = Lanes16::Zero();
  int64_t k = 0;
  for (; k + 16 <= count; k += 16) {
    acc = Fma(Lanes16::Load(x + k), Weight::Load(weight + k), acc);
  }
  if (k < count) {
    const Lanes16 w = readable - k >= 16 ? KeepFirst(Weight::Load(weight + k), count - k)
                                         : Weight::LoadPartial(weight + k, count - k);
    acc = Fma(Lanes16::LoadPartial(x + k, count - k), w, acc);
  }
  return acc;
}

template <typename Weight>
void DirectRow(const DotSegmentsArgs& args, int64_t row) {
  const float* x = args.x + row * args.x_stride;
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  for (int64_t n = 0; n < args.outputs; n += kGroup) {
    const int64_t outputs = args.outputs - n < kGroup ? args.outputs - n : kGroup;
    float p[kGroup * 8];
    for (int64_t i = 0; i < outputs; ++i) {
      const auto* w = weight + (n + i) * args.k;
      for (int64_t k = 0; k < args.k; k += 32) {
        __builtin_prefetch(reinterpret_cast<const char*>(w + k) + kFetchBytes);
      }
      Half8 half[8] = {};
      for (int s = 0; s < args.segments; ++s) {
        const int64_t begin = args.bound[s];
        half[s] = Fold(SegmentLanes<Weight>(x + begin, w + begin, args.bound[s + 1] - begin,
                                            (args.outputs - n - i) * args.k - begin));
      }
      Sum8(half, p + i * 8);
    }
    Finish(args, row, n, outputs, p);
  }
}

// kRows rows x with a panel of kGroup outputs.
template <int kRows>
void PanelRows(const DotSegmentsArgs& args, const PaddedSegments& padded, const float* const (&x)[kRows],
               const float* panel, int64_t stride, int64_t row, int64_t n, int64_t outputs) {
  Half8 half[kRows][kGroup][8];
  for (int s = 0; s < 8; ++s) {
    if (s >= args.segments) {
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kGroup; ++i) {
          half[r][i][s] = Half8{};
        }
      }
      continue;
    }
    const int64_t begin = padded.begin[s];
    const float* segment[kRows];
    for (int r = 0; r < kRows; ++r) {
      segment[r] = x[r] + begin;
    }
    for (int part = 0; part < kGroup; part += kTileOutputs) {
      Tile<kRows, kTileOutputs>(segment, panel + part * stride + begin, stride, padded.begin[s + 1] - begin,
                                &half[0][part][s], kGroup * 8, 8);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float p[kGroup * 8];
    for (int i = 0; i < kGroup; ++i) {
      Sum8(half[r][i], p + i * 8);
    }
    Finish(args, row + r, n, outputs, p);
  }
}

// Copies rows with their segments padded.
inline void PadRows(const DotSegmentsArgs& args, const PaddedSegments& padded, int64_t row, int64_t rows,
                    int64_t stride, float* out) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int s = 0; s < args.segments; ++s) {
      WidenRow<F32Weight>(args.x + (row + r) * args.x_stride + args.bound[s],
                          args.bound[s + 1] - args.bound[s], out + r * stride + padded.begin[s]);
    }
  }
}

template <typename Weight>
void PanelBlock(const DotSegmentsArgs& args, const PaddedSegments& padded) {
  alignas(64) float panel[kGroup * (kPaddedInputs + 16)];
  alignas(64) float copy[kTileRows * kPaddedInputs];
  const int64_t inputs = padded.begin[args.segments];
  const int64_t stride = inputs + 16;
  const int64_t block = padded.padding ? kTileRows * kPaddedInputs / inputs : args.rows;
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  for (int64_t first = 0; first < args.rows; first += block) {
    const int64_t rows = args.rows - first < block ? args.rows - first : block;
    if (padded.padding) {
      PadRows(args, padded, first, rows, inputs, copy);
    }
    const float* x = padded.padding ? copy : args.x + first * args.x_stride;
    const int64_t x_stride = padded.padding ? inputs : args.x_stride;
    for (int64_t n = 0; n < args.outputs; n += kGroup) {
      const int64_t outputs = args.outputs - n < kGroup ? args.outputs - n : kGroup;
      for (int64_t i = 0; i < kGroup; ++i) {  // past the last output: its weights again, results unused
        const auto* source = weight + (i < outputs ? n + i : n + outputs - 1) * args.k;
        for (int s = 0; s < args.segments; ++s) {
          WidenRow<Weight>(source + args.bound[s], args.bound[s + 1] - args.bound[s],
                           panel + i * stride + padded.begin[s]);
        }
      }
      ForRowTiles<kTileRows>(0, rows, [&](auto tile, int64_t row) {
        constexpr int kRows = decltype(tile)::value;
        const float* tile_x[kRows];
        for (int r = 0; r < kRows; ++r) {
          tile_x[r] = x + (row + r) * x_stride;
        }
        PanelRows<kRows>(args, padded, tile_x, panel, stride, first + row, n, outputs);
      });
    }
  }
}

}  // namespace

void DotSegments(const DotSegmentsArgs& args) {
  ForWeightType(args.dtype, [&](auto type) {
    using Weight = decltype(type);
    if constexpr (kPanels) {
      if (args.rows >= kPanelRows && args.k <= kPanelInputs) {
        return PanelBlock<Weight>(args, PaddedSegments(args));
      }
    }
    for (int64_t row = 0; row < args.rows; ++row) {
      DirectRow<Weight>(args, row);
    }
  });
}

}  // namespace arborist::kernels::ARBORIST_ISA
