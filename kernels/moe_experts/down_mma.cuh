#pragma once

#include <cstdint>

#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/moe_experts/expert_rows.cuh"
#include "kernels/moe_experts/item_sums.cuh"
#include "kernels/moe_experts/weight_ring.cuh"

// out = sum over experts of weight * (down inner), bf16 weights and inner values. A warp multiplies an item's
// rows with the block's 16 outputs over all inputs in ascending order.
namespace arborist::kernels::cuda {

template <int kWarpCount, int kTokenTiles>
struct DownMma {
  static constexpr int kWarps = kWarpCount;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kStages = kTokenTiles == 1 ? 4 : 3;  // so that four blocks of four warps share an SM
  static constexpr int kItemRows = 8 * kTokenTiles;
  static constexpr int kStageInputs = 64;
  static constexpr int kRingBytes = kWarps * kStages * 4 * 512;
  using Sums = ItemSums<kWarps, kItemRows>;
  using Table = typename Sums::Table;
  static constexpr int SharedBytes(int rows, int pairs, int experts) {
    return kRingBytes + Sums::Bytes(rows) + RowTableBytes(pairs, experts, kItemRows);
  }
};

// A lane's weights of the warp's items, copied ahead: four pieces a stage of 64 inputs (rows g and g + 8 of
// the first 32 inputs, then of the others).
template <typename Shape>
class DownRing {
 public:
  __device__ DownRing(const ExpertsPiece& piece, const typename Shape::Table& table, uint4* memory)
      : piece_(piece),
        table_(table),
        item_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        memory_(memory + threadIdx.x / 32 * (Shape::kStages * 4 * 32) + lane_) {
    Aim();
    for (int i = 0; i < Shape::kStages; ++i) {
      Advance();
    }
  }

  __device__ const uint4* Wait() const {
    WaitForStage<Shape::kStages - 1>();
    return memory_ + slot_ * (4 * 32);
  }
  // The oldest stage's values have been used: copies another into its slots.
  __device__ void Advance() {
    if (item_ < table_.items()) {
      uint4* const to = memory_ + slot_ * (4 * 32);
      const int k = k_ + lane_ % 4 * 8;
      if (full_) {
        const uint16_t* const from = down_ + k;
        CopyPieceAhead(to, from, 16);
        CopyPieceAhead(to + 32, from + 8 * width_, 16);
        CopyPieceAhead(to + 64, from + 32, 16);
        CopyPieceAhead(to + 96, from + 8 * width_ + 32, 16);
      } else if (aligned_) {
        const int low = k < width_ ? 16 : 0, high = k + 32 < width_ ? 16 : 0;
        const uint16_t* const from = down_ + (low > 0 ? k : 0);
        const uint16_t* const behind = down_ + (high > 0 ? k + 32 : 0);
        CopyPieceAhead(to, from, low);
        CopyPieceAhead(to + 32, from + 8 * width_, low);
        CopyPieceAhead(to + 64, behind, high);
        CopyPieceAhead(to + 96, behind + 8 * width_, high);
      } else {
        const int row = static_cast<int>(blockIdx.x) * kBlockOutputs + lane_ / 4;
        CopyPiecesSlowly(to, to + 32, down_, row, piece_.hidden, k, width_);
        CopyPiecesSlowly(to + 64, to + 96, down_, row, piece_.hidden, k + 32, width_);
      }
      k_ += Shape::kStageInputs;
      if (k_ >= width_) {
        k_ = 0;
        item_ += Shape::kWarps;
        Aim();
      }
    }
    EndOfStage();
    slot_ = slot_ + 1 == Shape::kStages ? 0 : slot_ + 1;
  }

 private:
  __device__ void Aim() {
    if (item_ >= table_.items()) {
      return;
    }
    const int expert = table_.item(item_).expert;
    const bool shared = expert == piece_.expert_count;
    const void* down = shared ? piece_.shared.down.data : piece_.experts[expert].down.data;
    width_ = shared ? piece_.shared_width : piece_.width;
    const int first = static_cast<int>(blockIdx.x) * kBlockOutputs;
    aligned_ = RowsAligned(down, width_) && first + kBlockOutputs <= piece_.hidden;
    full_ = aligned_ && width_ % Shape::kStageInputs == 0;
    down_ = static_cast<const uint16_t*>(down) + (aligned_ ? int64_t{first + lane_ / 4} * width_ : 0);
  }

  const ExpertsPiece& piece_;
  const typename Shape::Table& table_;
  int item_;
  int lane_;
  uint4* memory_;
  int k_ = 0;
  int slot_ = 0;
  int width_ = 0;
  bool aligned_ = false;            // every piece of the item is 16 aligned bytes or behind the row's end
  bool full_ = false;               // and none is behind it
  const uint16_t* down_ = nullptr;  // the lane's first row if `aligned_`, else the matrix
};

// The inner values of an item's rows as token operands of a stage, loaded one stage ahead of their use.
template <typename Shape>
class InnerTokens {
 public:
  static constexpr int kTiles = Shape::kItemRows / 8;

  // The first stage of item number `index`.
  __device__ void Open(const ExpertsPiece& piece, const typename Shape::Table& table, int index) {
    if (index >= table.items()) {
      return;
    }
    const ExpertItem item = table.item(index);
    const bool shared = item.expert == piece.expert_count;
    width_ = shared ? piece.shared_width : piece.width;
    rows_ = item.rows;
    const auto* inner = reinterpret_cast<const uint16_t*>(shared ? piece.shared_inner : piece.inner);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      // Rows past the end repeat the last one: nobody reads what becomes of them.
      const int row = min(j * 8 + static_cast<int>(threadIdx.x) % 32 / 4, rows_ - 1);
      row_[j] = inner + table.inner_row(item, row) * width_;
    }
    Load(0);
  }
  __device__ void Load(int k) {
    k += static_cast<int>(threadIdx.x) % 4 * 8;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      if (j * 8 >= rows_) {
        break;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Rows begin at multiples of 16 bytes if the width does: the scratch does.
        const int at = k + half * 32;
        if (width_ % 8 != 0) {
          token[half][j] = LoadPieceSlowly(row_[j], at, width_);
        } else {
          token[half][j] = at < width_ ? *reinterpret_cast<const uint4*>(row_[j] + at) : uint4{};
        }
      }
    }
  }
  __device__ int rows() const { return rows_; }
  __device__ int width() const { return width_; }

  uint4 token[2][kTiles];

 private:
  const uint16_t* row_[kTiles];
  int width_ = 0;
  int rows_ = 0;
};

template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 20 / Shape::kWarps)
    DownMmaKernel(const __grid_constant__ ExpertsPiece call) {
  constexpr int kTiles = Shape::kItemRows / 8;
  extern __shared__ uint4 shared[];
  LetNextKernelStart();
  const ExpertsPiece piece = call.Mine();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  uint4* const behind_ring = shared + Shape::kRingBytes / 16;
  typename Shape::Sums sums(piece, behind_ring);
  const typename Shape::Table table(piece, behind_ring + Shape::Sums::Bytes(piece.rows) / 16, shared);
  DownRing<Shape> ring(piece, table, shared);
  WaitForKernelBefore();
  InnerTokens<Shape> tokens;
  tokens.Open(piece, table, warp);
  for (int base = 0; base < table.items(); base += Shape::kWarps) {
    sums.Describe(piece, table, base + warp);
    if (base + warp < table.items()) {
      const int width = tokens.width();
      const int tiles = (tokens.rows() + 7) / 8;
      float sum[kTiles][4] = {};
      for (int k = 0; k < width; k += Shape::kStageInputs) {
        const uint4* const weight = ring.Wait();
        const uint4 upper[2] = {weight[0], weight[64]};
        const uint4 lower[2] = {weight[32], weight[96]};
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          if (j < tiles) {
            MmaStep(sum[j], upper[0], lower[0], tokens.token[0][j]);
            MmaStep(sum[j], upper[1], lower[1], tokens.token[1][j]);
          }
        }
        if (k + Shape::kStageInputs < width) {
          tokens.Load(k + Shape::kStageInputs);
        } else {
          tokens.Open(piece, table, base + warp + Shape::kWarps);
        }
        ring.Advance();
      }
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          sums.round.product[warp][j * 8 + lane % 4 * 2 + c % 2][lane / 4 + c / 2 * 8] = sum[j][c];
        }
      }
    }
    sums.AddRound();
  }
  sums.Store(piece);
}

}  // namespace arborist::kernels::cuda
