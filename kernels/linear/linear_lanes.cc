#include "kernels/linear/linear_lanes.h"

#include "kernels/linear/dot_tile.h"
#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

inline const float* Row(const DotBlockArgs& args, int64_t row) {
  return args.x + (args.index != nullptr ? args.index[row] : row) * args.x_stride;
}

// Few rows: weights are widened where they are used.
template <typename Weight, int kRows>
void DirectRows(const DotBlockArgs& args, int64_t row) {
  constexpr int kOutputs = !kPanels ? 1 : kRows == 1 ? 4 : 2;
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = Row(args, row + r);
  }
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  float* out = args.out + row * args.out_stride;
  int64_t n = 0;
  for (; n + kGroup <= args.outputs; n += kGroup) {
    Half8 half[kRows][kGroup];
    for (int part = 0; part < kGroup; part += kOutputs) {
      Lanes16 acc[kRows][kOutputs];
      Accumulate<Weight>(x, weight + (n + part) * args.k, args.k, args.k, acc);
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
    Accumulate<Weight>(x, weight + n * args.k, args.k, args.k, acc);
    for (int r = 0; r < kRows; ++r) {
      out[r * args.out_stride + n] = acc[r][0].Sum();
    }
  }
}

// Rows [row, row + kRows) with a panel of kGroup outputs, the first `outputs` of them real.
template <int kRows>
void PanelRows(const DotBlockArgs& args, const float* panel, int64_t stride, int64_t row, int64_t n,
               int64_t outputs) {
  const float* x[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = Row(args, row + r);
  }
  Half8 half[kRows][kGroup];
  for (int part = 0; part < kGroup; part += kTileOutputs) {
    Tile<kRows, kTileOutputs>(x, panel + part * stride, stride, args.k, half[0] + part, kGroup, 1);
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = args.out + (row + r) * args.out_stride + n;
    if (outputs == kGroup) {
      Sum8(half[r], out);
      continue;
    }
    float sums[kGroup];
    Sum8(half[r], sums);
    for (int64_t i = 0; i < outputs; ++i) {
      out[i] = sums[i];
    }
  }
}

// Many rows: every weight is widened once.
template <typename Weight>
void PanelBlock(const DotBlockArgs& args) {
  alignas(64) float panel[kGroup * (kPanelInputs + 16)];
  // 16 more than the padded row: outputs at a power of two would share one set of the cache.
  const int64_t stride = (args.k + 15) / 16 * 16 + 16;
  const auto* weight = static_cast<const typename Weight::Element*>(args.weight);
  for (int64_t n = 0; n < args.outputs; n += kGroup) {
    const int64_t outputs = args.outputs - n < kGroup ? args.outputs - n : kGroup;
    for (int64_t i = 0; i < kGroup; ++i) {  // past the last output: its weights again, results unused
      const int64_t source = i < outputs ? n + i : n + outputs - 1;
      WidenRow<Weight>(weight + source * args.k, args.k, (args.outputs - source) * args.k,
                       panel + i * stride);
    }
    ForRowTiles<kTileRows>(0, args.rows, [&](auto tile, int64_t row) {
      PanelRows<decltype(tile)::value>(args, panel, stride, row, n, outputs);
    });
  }
}

}  // namespace

void DotBlock(const DotBlockArgs& args) {
  ForWeightType(args.dtype, [&](auto type) {
    using Weight = decltype(type);
    if constexpr (kPanels) {
      if (args.rows >= kPanelRows && args.k <= kPanelInputs) {
        return PanelBlock<Weight>(args);
      }
    }
    ForRowTiles<kPanels ? 3 : 1>(
        0, args.rows, [&](auto tile, int64_t row) { DirectRows<Weight, decltype(tile)::value>(args, row); });
  });
}

}  // namespace arborist::kernels::ARBORIST_ISA
