#pragma once

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/moe_experts/expert_rows.cuh"
#include "kernels/moe_experts/weight_ring.cuh"

// inner = silu(gate x) * (up x), bf16 weights. A unit of work is an item and 16 inner columns: a weight tile
// has 8 rows of gate above the same 8 rows of up, so both halves of a product meet in one lane. The eight
// warps of a block share a unit by its inputs: warp w takes those of [512 i + 64 w, 512 i + 64 w + 64); their
// sums are added in the order of the warps. So bits depend on the two vectors and their length alone.
namespace arborist::kernels::cuda {

template <int kTokenTileCount>
struct GatedMma {
  static constexpr int kTokenTiles = kTokenTileCount;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = 4;
  static constexpr int kItemRows = 8 * kTokenTiles;
  static constexpr int kColumns = 16;  // two weight tiles
  static constexpr int kRingBytes = kWarps * kStages * 4 * 512;
  static constexpr int kSumBytes = kWarps * 2 * kTokenTiles * 32 * 16;
  using Table = RowTable<kThreads, kItemRows>;
  static constexpr int SharedBytes(int pairs, int experts) {
    return kRingBytes + kSumBytes + RowTableBytes(pairs, experts, kItemRows);
  }
};

__device__ inline float SiluMul(float gate, float up) { return gate / (1.0f + ExpInline(-gate)) * up; }

// Which part of the work unit number `unit` is.
template <typename Shape>
struct GatedUnit {
  __device__ GatedUnit(const ExpertsPiece& piece, const typename Shape::Table& table, int unit) {
    const int tiles = (piece.width + Shape::kColumns - 1) / Shape::kColumns;
    const int shared_tiles = (piece.shared_width + Shape::kColumns - 1) / Shape::kColumns;
    const int routed = table.routed_items() * tiles;
    if (unit < routed) {
      item = table.item(unit / tiles);
      column = unit % tiles * Shape::kColumns;
      width = piece.width;
    } else {
      item = table.item(table.routed_items() + (unit - routed) / shared_tiles);
      column = (unit - routed) % shared_tiles * Shape::kColumns;
      width = piece.shared_width;
    }
  }
  __device__ static int Count(const ExpertsPiece& piece, const typename Shape::Table& table) {
    const int tiles = (piece.width + Shape::kColumns - 1) / Shape::kColumns;
    const int shared_tiles = (piece.shared_width + Shape::kColumns - 1) / Shape::kColumns;
    return table.routed_items() * tiles + (table.items() - table.routed_items()) * shared_tiles;
  }
  ExpertItem item;
  int column;
  int width;
};

// A lane's weights, copied ahead.
template <typename Shape>
class GatedRing {
 public:
  __device__ GatedRing(const ExpertsPiece& piece, const typename Shape::Table& table, int units, int steps,
                       uint4* memory)
      : piece_(piece),
        table_(table),
        units_(units),
        steps_(steps),
        unit_(static_cast<int>(blockIdx.x)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        memory_(memory + threadIdx.x / 32 * (Shape::kStages * 4 * 32) + lane_) {
    if (steps_ == 0) {
      unit_ = units_;
    }
    Aim();
    for (int i = 0; i < Shape::kStages; ++i) {
      Advance();
    }
  }

  // Inputs [Input(step), + 32) are the warp's.
  __device__ static int Input(int step) {
    return step / 2 * (64 * Shape::kWarps) + static_cast<int>(threadIdx.x) / 32 * 64 + step % 2 * 32;
  }
  __device__ static int Steps(int inputs) {
    const int rest = inputs % (64 * Shape::kWarps) - static_cast<int>(threadIdx.x) / 32 * 64;
    return inputs / (64 * Shape::kWarps) * 2 + (rest > 32 ? 2 : rest > 0 ? 1 : 0);
  }

  // The oldest stage: pieces of gate and up for the first tile, then for the second.
  __device__ const uint4* Wait() const {
    WaitForStage<Shape::kStages - 1>();
    return memory_ + slot_ * (4 * 32);
  }
  // Its values have been used (they are in registers): copies another stage into its slots.
  __device__ void Advance() {
    if (unit_ < units_) {
      uint4* const to = memory_ + slot_ * (4 * 32);
      const int k = Input(step_) + lane_ % 4 * 8;
      if (full_) {
        CopyPieceAhead(to, gate_ + k, 16);
        CopyPieceAhead(to + 32, up_ + k, 16);
        CopyPieceAhead(to + 64, gate_ + k + 8 * piece_.hidden, 16);
        CopyPieceAhead(to + 96, up_ + k + 8 * piece_.hidden, 16);
      } else {
        CopyPiecesSlowly(to, to + 64, gate_, row_, width_, k, piece_.hidden);
        CopyPiecesSlowly(to + 32, to + 96, up_, row_, width_, k, piece_.hidden);
      }
      if (++step_ == steps_) {
        step_ = 0;
        unit_ += static_cast<int>(gridDim.x);
        Aim();
      }
    }
    EndOfStage();
    slot_ = slot_ + 1 == Shape::kStages ? 0 : slot_ + 1;
  }

 private:
  __device__ void Aim() {
    if (unit_ >= units_) {
      return;
    }
    const GatedUnit<Shape> unit(piece_, table_, unit_);
    const bool shared = unit.item.expert == piece_.expert_count;
    const void* gate = shared ? piece_.shared.gate.data : piece_.experts[unit.item.expert].gate.data;
    const void* up = shared ? piece_.shared.up.data : piece_.experts[unit.item.expert].up.data;
    row_ = unit.column + lane_ / 4;
    width_ = unit.width;
    full_ = RowsAligned(gate, piece_.hidden) && RowsAligned(up, piece_.hidden) && piece_.hidden % 32 == 0 &&
            unit.column + Shape::kColumns <= width_;
    const int64_t offset = full_ ? int64_t{row_} * piece_.hidden : 0;
    gate_ = static_cast<const uint16_t*>(gate) + offset;
    up_ = static_cast<const uint16_t*>(up) + offset;
  }

  const ExpertsPiece& piece_;
  const typename Shape::Table& table_;
  int units_;
  int steps_;
  int unit_;
  int lane_;
  uint4* memory_;
  int step_ = 0;
  int slot_ = 0;
  int row_ = 0;
  int width_ = 0;
  bool full_ = false;  // every piece of the unit is 16 aligned bytes
  // The lane's first row if `full_`, else the matrix.
  const uint16_t* gate_ = nullptr;
  const uint16_t* up_ = nullptr;
};

__device__ __noinline__ float4 LoadTokensSlowly(const float* row, int k, int inputs) {
  return {k < inputs ? row[k] : 0.0f, k + 1 < inputs ? row[k + 1] : 0.0f, k + 2 < inputs ? row[k + 2] : 0.0f,
          k + 3 < inputs ? row[k + 3] : 0.0f};
}

// Eight inputs of a token in fp32, loaded one step before they are rounded and used.
struct TokenPiece {
  __device__ void Load(const float* row, int k, int inputs, bool full) {
    if (full) {
      low = *reinterpret_cast<const float4*>(row + k);
      high = *reinterpret_cast<const float4*>(row + k + 4);
    } else {
      low = LoadTokensSlowly(row, k, inputs);
      high = LoadTokensSlowly(row, k + 4, inputs);
    }
  }
  __device__ uint4 Rounded() const {
    return {RoundPair(low.x, low.y), RoundPair(low.z, low.w), RoundPair(high.x, high.y),
            RoundPair(high.z, high.w)};
  }
  float4 low, high;
};

// Adds the warps' sums in their order and stores the unit's inner values.
template <typename Shape>
__device__ inline void FinishGatedUnit(const ExpertsPiece& piece, const typename Shape::Table& table,
                                       const GatedUnit<Shape>& unit, const float4* sums, int token_tiles) {
  // Thread (tile pair, lane, token of the lane): 2 x 2 tiles of 32 lanes with two tokens each.
  const int lane = static_cast<int>(threadIdx.x) / 2 % 32;
  const int second_token = static_cast<int>(threadIdx.x) % 2;
  const int weight_tile = static_cast<int>(threadIdx.x) / 64 % 2;
  const int token_tile = static_cast<int>(threadIdx.x) / 128;
  const int column = unit.column + weight_tile * 8 + lane / 4;
  const int token = token_tile * 8 + lane % 4 * 2 + second_token;
  if (token_tile >= token_tiles || column >= unit.width || token >= unit.item.rows) {
    return;
  }
  float gate = 0;
  float up = 0;
#pragma unroll
  for (int w = 0; w < Shape::kWarps; ++w) {
    const auto* sum = reinterpret_cast<const float*>(
        sums + ((w * Shape::kTokenTiles + token_tile) * 2 + weight_tile) * 32 + lane);
    gate += sum[second_token];
    up += sum[second_token + 2];
  }
  auto* const inner = reinterpret_cast<__nv_bfloat16*>(
      unit.item.expert == piece.expert_count ? piece.shared_inner : piece.inner);
  inner[table.inner_row(unit.item, token) * unit.width + column] = __float2bfloat16_rn(SiluMul(gate, up));
}

// The rows are on their way to the second cache while they are being sorted.
__device__ inline void PrefetchRows(const ExpertsPiece& piece) {
  constexpr int kLine = 128 / sizeof(float);
  const int lines = (piece.hidden + kLine - 1) / kLine;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < lines * piece.rows;
       i += static_cast<int>(gridDim.x * blockDim.x)) {
    PrefetchLine(piece.x + i / lines * piece.x_stride + i % lines * kLine);
  }
}

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    GatedMmaKernel(const __grid_constant__ ExpertsPiece call) {
  constexpr int kTokenTiles = Shape::kTokenTiles;
  extern __shared__ uint4 shared[];
  const ExpertsPiece piece = call.Mine();
  WaitForKernelBefore();
  LetNextKernelStart();  // which reads the choices before it waits
  PrefetchRows(piece);
  auto* const sums = reinterpret_cast<float4*>(shared + Shape::kRingBytes / 16);
  const typename Shape::Table table(piece, sums + Shape::kSumBytes / 16, shared);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int units = GatedUnit<Shape>::Count(piece, table);
  const int steps = GatedRing<Shape>::Steps(piece.hidden);
  const bool full_tokens = piece.x_aligned && piece.hidden % 32 == 0;
  GatedRing<Shape> ring(piece, table, units, steps, shared);
  for (int u = static_cast<int>(blockIdx.x); u < units; u += static_cast<int>(gridDim.x)) {
    const GatedUnit<Shape> unit(piece, table, u);
    const int token_tiles = (unit.item.rows + 7) / 8;
    const float* row[kTokenTiles];
    TokenPiece token[kTokenTiles];
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
      // Rows past the end repeat the last one: nobody reads what becomes of them.
      const int i = min(j * 8 + lane / 4, unit.item.rows - 1);
      row[j] = piece.x + table.row(unit.item, i) * piece.x_stride;
      if (steps > 0 && j < token_tiles) {
        token[j].Load(row[j], GatedRing<Shape>::Input(0) + lane % 4 * 8, piece.hidden, full_tokens);
      }
    }
    float sum[2][kTokenTiles][4] = {};
    for (int s = 0; s < steps; ++s) {
      const uint4* const weight = ring.Wait();
      const uint4 gate[2] = {weight[0], weight[64]};
      const uint4 up[2] = {weight[32], weight[96]};
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        if (j >= token_tiles) {
          break;
        }
        const uint4 rounded = token[j].Rounded();
        if (s + 1 < steps) {
          token[j].Load(row[j], GatedRing<Shape>::Input(s + 1) + lane % 4 * 8, piece.hidden, full_tokens);
        }
        MmaStep(sum[0][j], gate[0], up[0], rounded);
        MmaStep(sum[1][j], gate[1], up[1], rounded);
      }
      ring.Advance();
    }
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        sums[((warp * kTokenTiles + j) * 2 + m) * 32 + lane] = {sum[m][j][0], sum[m][j][1], sum[m][j][2],
                                                                sum[m][j][3]};
      }
    }
    __syncthreads();
    FinishGatedUnit(piece, table, unit, sums, token_tiles);
    __syncthreads();
  }
}

}  // namespace arborist::kernels::cuda
