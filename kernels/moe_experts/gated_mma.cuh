#pragma once

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/moe_experts/expert_rows.cuh"
#include "kernels/moe_experts/weight_ring.cuh"

// inner = silu(gate x) * (up x), bf16 weights. A unit of work is an item and 16 inner columns: a weight tile
// has 8 rows of gate above the same 8 rows of up, so both halves of a product meet in one lane. The eight
// warps of a block share a unit by its inputs: warp w takes those of [512 i + 64 w, 512 i + 64 w + 64); their
// sums are added in the order of the warps. So bits depend on the two vectors and their length alone.
namespace arborist::kernels::cuda {

struct GatedMma {
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = 4;
  static constexpr int kItemRows = 16;  // two token tiles
  static constexpr int kColumns = 16;   // two weight tiles
  static constexpr int kRingBytes = kWarps * kStages * 4 * 512;
  static constexpr int kSumBytes = kWarps * 4 * 32 * 16;
  static constexpr int SharedBytes(int pairs, int experts) {
    return kRingBytes + kSumBytes + RowTableBytes(pairs, experts, kItemRows);
  }
};

using GatedTable = RowTable<GatedMma::kThreads, GatedMma::kItemRows>;

__device__ inline float SiluMul(float gate, float up) { return gate / (1.0f + ExpInline(-gate)) * up; }

// Which part of the work unit number `unit` is.
struct GatedUnit {
  __device__ GatedUnit(const ExpertsPiece& piece, const GatedTable& table, int unit) {
    const int tiles = (piece.width + GatedMma::kColumns - 1) / GatedMma::kColumns;
    const int shared_tiles = (piece.shared_width + GatedMma::kColumns - 1) / GatedMma::kColumns;
    const int routed = table.routed_items() * tiles;
    if (unit < routed) {
      item = table.item(unit / tiles);
      column = unit % tiles * GatedMma::kColumns;
      width = piece.width;
    } else {
      item = table.item(table.routed_items() + (unit - routed) / shared_tiles);
      column = (unit - routed) % shared_tiles * GatedMma::kColumns;
      width = piece.shared_width;
    }
  }
  __device__ static int Count(const ExpertsPiece& piece, const GatedTable& table) {
    const int tiles = (piece.width + GatedMma::kColumns - 1) / GatedMma::kColumns;
    const int shared_tiles = (piece.shared_width + GatedMma::kColumns - 1) / GatedMma::kColumns;
    return table.routed_items() * tiles + (table.items() - table.routed_items()) * shared_tiles;
  }
  ExpertItem item;
  int column;
  int width;
};

// A lane's weights, copied ahead.
class GatedRing {
 public:
  __device__ GatedRing(const ExpertsPiece& piece, const GatedTable& table, int units, int steps,
                       uint4* memory)
      : piece_(piece),
        table_(table),
        units_(units),
        steps_(steps),
        unit_(static_cast<int>(blockIdx.x)),
        lane_(static_cast<int>(threadIdx.x) % 32),
        memory_(memory + threadIdx.x / 32 * (GatedMma::kStages * 4 * 32) + lane_) {
    if (steps_ == 0) {
      unit_ = units_;
    }
    Aim();
    for (int i = 0; i < GatedMma::kStages; ++i) {
      Advance();
    }
  }

  // Inputs [Input(step), + 32) are the warp's.
  __device__ static int Input(int step) {
    return step / 2 * (64 * GatedMma::kWarps) + static_cast<int>(threadIdx.x) / 32 * 64 + step % 2 * 32;
  }
  __device__ static int Steps(int inputs) {
    const int rest = inputs % (64 * GatedMma::kWarps) - static_cast<int>(threadIdx.x) / 32 * 64;
    return inputs / (64 * GatedMma::kWarps) * 2 + (rest > 32 ? 2 : rest > 0 ? 1 : 0);
  }

  // The oldest stage: pieces of gate and up for the first tile, then for the second.
  __device__ const uint4* Wait() const {
    WaitForStage<GatedMma::kStages - 1>();
    return memory_ + slot_ * (4 * 32);
  }
  // Its values have been used (they are in registers): copies another stage into its slots.
  __device__ void Advance() {
    if (unit_ < units_) {
      uint4* const to = memory_ + slot_ * (4 * 32);
      const int k = Input(step_) + lane_ % 4 * 8;
      CopyPiece(to, gate_, k, inputs_[0], aligned_);
      CopyPiece(to + 32, up_, k, inputs_[0], aligned_);
      CopyPiece(to + 64, gate_ + second_, k, inputs_[1], aligned_);
      CopyPiece(to + 96, up_ + second_, k, inputs_[1], aligned_);
      if (++step_ == steps_) {
        step_ = 0;
        unit_ += static_cast<int>(gridDim.x);
        Aim();
      }
    }
    EndOfStage();
    slot_ = slot_ + 1 == GatedMma::kStages ? 0 : slot_ + 1;
  }

 private:
  __device__ void Aim() {
    if (unit_ >= units_) {
      return;
    }
    const GatedUnit unit(piece_, table_, unit_);
    const bool shared = unit.item.expert == piece_.expert_count;
    const void* gate = shared ? piece_.shared.gate.data : piece_.experts[unit.item.expert].gate.data;
    const void* up = shared ? piece_.shared.up.data : piece_.experts[unit.item.expert].up.data;
    aligned_ = RowsAligned(gate, piece_.hidden) && RowsAligned(up, piece_.hidden);
    const int row = unit.column + lane_ / 4;
    // Rows past the end have no inputs; their pointers stay inside the matrix.
    inputs_[0] = row < unit.width ? piece_.hidden : 0;
    inputs_[1] = row + 8 < unit.width ? piece_.hidden : 0;
    second_ = inputs_[1] > 0 ? int64_t{8} * piece_.hidden : 0;
    const int64_t offset = inputs_[0] > 0 ? int64_t{row} * piece_.hidden : 0;
    gate_ = static_cast<const uint16_t*>(gate) + offset;
    up_ = static_cast<const uint16_t*>(up) + offset;
  }

  const ExpertsPiece& piece_;
  const GatedTable& table_;
  int units_;
  int steps_;
  int unit_;
  int lane_;
  uint4* memory_;
  int step_ = 0;
  int slot_ = 0;
  bool aligned_ = false;
  int inputs_[2] = {};
  int64_t second_ = 0;
  const uint16_t* gate_ = nullptr;
  const uint16_t* up_ = nullptr;
};

// Eight inputs of a token in fp32, loaded one step before they are rounded and used.
struct TokenPiece {
  __device__ void Load(const float* row, int k, int inputs, bool aligned) {
    if (row == nullptr) {
      return;
    }
    if (aligned && k + 8 <= inputs) {
      const float4 low = *reinterpret_cast<const float4*>(row + k);
      const float4 high = *reinterpret_cast<const float4*>(row + k + 4);
      value[0] = low.x, value[1] = low.y, value[2] = low.z, value[3] = low.w;
      value[4] = high.x, value[5] = high.y, value[6] = high.z, value[7] = high.w;
      return;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value[i] = k + i < inputs ? row[k + i] : 0.0f;
    }
  }
  __device__ uint4 Rounded() const {
    return {RoundPair(value[0], value[1]), RoundPair(value[2], value[3]), RoundPair(value[4], value[5]),
            RoundPair(value[6], value[7])};
  }
  float value[8] = {};
};

// Adds the warps' sums in their order and stores the unit's inner values.
__device__ inline void FinishGatedUnit(const ExpertsPiece& piece, const GatedUnit& unit, const float4* sums,
                                       int token_tiles) {
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
  for (int w = 0; w < GatedMma::kWarps; ++w) {
    const auto* sum =
        reinterpret_cast<const float*>(sums + ((w * 2 + token_tile) * 2 + weight_tile) * 32 + lane);
    gate += sum[second_token];
    up += sum[second_token + 2];
  }
  auto* const inner =
      static_cast<__nv_bfloat16*>(unit.item.expert == piece.expert_count ? piece.shared_inner : piece.inner);
  inner[int64_t{unit.item.first + token} * unit.width + column] = __float2bfloat16_rn(SiluMul(gate, up));
}

__global__ void __launch_bounds__(GatedMma::kThreads, 2)
    GatedMmaKernel(const __grid_constant__ ExpertsPiece piece) {
  constexpr int kTokenTiles = GatedMma::kItemRows / 8;
  extern __shared__ uint4 shared[];
  auto* const sums = reinterpret_cast<float4*>(shared + GatedMma::kRingBytes / 16);
  const GatedTable table(piece, sums + GatedMma::kSumBytes / 16);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int units = GatedUnit::Count(piece, table);
  const int steps = GatedRing::Steps(piece.hidden);
  GatedRing ring(piece, table, units, steps, shared);
  for (int u = static_cast<int>(blockIdx.x); u < units; u += static_cast<int>(gridDim.x)) {
    const GatedUnit unit(piece, table, u);
    const int token_tiles = (unit.item.rows + 7) / 8;
    const float* row[kTokenTiles];
    TokenPiece token[kTokenTiles];
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
      const int i = j * 8 + lane / 4;
      row[j] = i < unit.item.rows ? piece.x + table.row(unit.item, i) * piece.x_stride : nullptr;
      if (steps > 0) {
        token[j].Load(row[j], GatedRing::Input(0) + lane % 4 * 8, piece.hidden, piece.x_aligned);
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
          token[j].Load(row[j], GatedRing::Input(s + 1) + lane % 4 * 8, piece.hidden, piece.x_aligned);
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
        sums[((warp * 2 + j) * 2 + m) * 32 + lane] = {sum[m][j][0], sum[m][j][1], sum[m][j][2], sum[m][j][3]};
      }
    }
    __syncthreads();
    FinishGatedUnit(piece, unit, sums, token_tiles);
    __syncthreads();
  }
}

}  // namespace arborist::kernels::cuda
