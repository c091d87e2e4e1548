#pragma once

#include <cstdint>

#include "kernels/moe_experts/expert_rows.cuh"

// The end of the down products, for any weight type. A block owns 16 outputs of all rows and walks the items
// in ascending order, one item a warp and round; after a round the items' products are added to the rows'
// sums in the order of the items: sum = fma(weight, product, sum). A row's sums belong to one group of 16
// threads, so their order is kept without atomics. The shared expert's items come last, with weight 1.
namespace arborist::kernels::cuda {

inline constexpr int kBlockOutputs = 16;

template <int kWarps, int kItemRows>
struct ItemSums {
  // Spreads the lanes of a warp over the banks.
  static constexpr int kPitch = kBlockOutputs + 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kGroups = kThreads / kBlockOutputs;
  using Table = RowTable<kThreads, kItemRows>;

  struct Shared {
    float product[kWarps][kItemRows][kPitch];
    float weight[kWarps][kItemRows];
    int row[kWarps][kItemRows];
    int rows[kWarps];
  };
  static constexpr int Bytes(int piece_rows) {
    return static_cast<int>(sizeof(Shared)) + piece_rows * kBlockOutputs * 4;
  }

  // Every thread zeroes what it owns.
  __device__ ItemSums(const ExpertsPiece& piece, void* memory)
      : round(*static_cast<Shared*>(memory)),
        sums_(reinterpret_cast<float*>(&round + 1)),
        output_(static_cast<int>(threadIdx.x) % kBlockOutputs),
        group_(static_cast<int>(threadIdx.x) / kBlockOutputs) {
    for (int row = group_; row < piece.rows; row += kGroups) {
      sums_[row * kBlockOutputs + output_] = 0;
    }
  }

  // The warp's item of this round: whose rows its products are.
  __device__ void Describe(const ExpertsPiece& piece, const Table& table, int index) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int i = static_cast<int>(threadIdx.x) % 32;
    if (index >= table.items()) {
      round.rows[warp] = 0;
      return;
    }
    const ExpertItem item = table.item(index);
    round.rows[warp] = item.rows;
    if (i < item.rows) {
      int row = item.first + i;
      float weight = 1.0f;
      if (item.expert != piece.expert_count) {
        const int pair = static_cast<int>(table.pair(row));
        row = table.row(item, i);
        weight = piece.weight[row * piece.weight_stride + (pair - row * piece.top_k)];
      }
      round.row[warp][i] = row;
      round.weight[warp][i] = weight;
    }
  }

  // All warps' products of the round are in shared memory: adds them in order.
  __device__ void AddRound() {
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) {
      for (int i = 0; i < round.rows[w]; ++i) {
        const int row = round.row[w][i];
        if (row % kGroups == group_) {
          float& sum = sums_[row * kBlockOutputs + output_];
          sum = fmaf(round.weight[w][i], round.product[w][i][output_], sum);
        }
      }
    }
    __syncthreads();
  }

  __device__ void Store(const ExpertsPiece& piece) const {
    const int column = static_cast<int>(blockIdx.x) * kBlockOutputs + output_;
    if (column >= piece.hidden) {
      return;
    }
    for (int row = group_; row < piece.rows; row += kGroups) {
      piece.out[row * piece.out_stride + column] = sums_[row * kBlockOutputs + output_];
    }
  }

  Shared& round;

 private:
  float* sums_;
  int output_;
  int group_;
};

}  // namespace arborist::kernels::cuda
