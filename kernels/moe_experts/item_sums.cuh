#pragma once

#include <cstdint>

#include "kernels/moe_experts/expert_rows.cuh"

// The end of the down products, for any weight type. A block owns 16 outputs of all rows of its piece and
// walks the items in ascending order, one item a warp and round; after a round the items' products are added
// to the rows' sums in the order of the items: sum = fma(weight, product, sum). A warp adds for its own
// outputs, item by item, so the order is kept without atomics and without more barriers. The shared expert's
// items come last, with weight 1.
namespace arborist::kernels::cuda {

inline constexpr int kBlockOutputs = 16;

template <int kWarps, int kItemRows>
struct ItemSums {
  // Spreads the lanes of a warp over the banks.
  static constexpr int kPitch = kBlockOutputs + 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kOwnOutputs = kBlockOutputs / kWarps;
  // A lane's share of an item: one row, these many outputs.
  static constexpr int kOwnSums = kItemRows * kOwnOutputs / 32;
  static_assert(kOwnSums * 32 == kItemRows * kOwnOutputs && 32 % kItemRows == 0);
  using Table = RowTable<kThreads, kItemRows>;

  struct Shared {
    float product[kWarps][kItemRows][kPitch];
    float weight[kWarps][kItemRows];
    int row[kWarps][kItemRows];  // -1: none
  };
  static constexpr int Bytes(int piece_rows) {
    return (static_cast<int>(sizeof(Shared)) + Pitch(piece_rows) * kBlockOutputs * 4 + 15) / 16 * 16;
  }

  // The sums are zero after the block's next barrier.
  __device__ ItemSums(const ExpertsPiece& piece, void* memory)
      : round(*static_cast<Shared*>(memory)),
        sums_(reinterpret_cast<float*>(&round + 1)),
        pitch_(Pitch(piece.rows)) {
    for (int i = static_cast<int>(threadIdx.x); i < pitch_ * kBlockOutputs; i += kThreads) {
      sums_[i] = 0;
    }
  }

  // The warp's item of this round: whose rows its products are.
  __device__ void Describe(const ExpertsPiece& piece, const Table& table, int index) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int i = static_cast<int>(threadIdx.x) % 32;
    if (i >= kItemRows) {
      return;
    }
    int row = -1;
    float weight = 1.0f;
    if (index < table.items()) {
      const ExpertItem item = table.item(index);
      if (i < item.rows) {
        row = table.row(item, i);
        if (item.expert != piece.expert_count) {
          const int choice = static_cast<int>(table.pair(item.first + i)) - row * piece.top_k;
          weight = piece.weight[row * piece.weight_stride + choice];
        }
      }
    }
    round.row[warp][i] = row;
    round.weight[warp][i] = weight;
  }

  // All warps' products of the round are in shared memory: adds them in order.
  __device__ void AddRound() {
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int i = lane % kItemRows;
    const int first = static_cast<int>(threadIdx.x) / 32 * kOwnOutputs + lane / kItemRows;
    int row[kWarps];
    float weight[kWarps];
    float product[kWarps][kOwnSums];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      row[w] = round.row[w][i];
      weight[w] = round.weight[w][i];
#pragma unroll
      for (int j = 0; j < kOwnSums; ++j) {
        product[w][j] = round.product[w][i][first + j * (32 / kItemRows)];
      }
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
      for (int j = 0; j < kOwnSums; ++j) {
        if (row[w] >= 0) {
          float& sum = sums_[(first + j * (32 / kItemRows)) * pitch_ + row[w]];
          sum = fmaf(weight[w], product[w][j], sum);
        }
      }
      __syncwarp();  // the next item may have the same row in another lane
    }
    __syncthreads();
  }

  __device__ void Store(const ExpertsPiece& piece) const {
    const int output = static_cast<int>(threadIdx.x) % kBlockOutputs;
    const int column = static_cast<int>(blockIdx.x) * kBlockOutputs + output;
    if (column >= piece.hidden) {
      return;
    }
    for (int row = static_cast<int>(threadIdx.x) / kBlockOutputs; row < piece.rows;
         row += kThreads / kBlockOutputs) {
      piece.out[row * piece.out_stride + column] = sums_[output * pitch_ + row];
    }
  }

  Shared& round;

 private:
  static constexpr int Pitch(int rows) { return rows | 1; }

  float* sums_;
  int pitch_;
};

}  // namespace arborist::kernels::cuda
