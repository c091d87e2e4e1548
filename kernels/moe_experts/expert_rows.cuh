#pragma once

#include <cstdint>

#include "kernels/moe_experts/moe_experts.h"

// Which rows chose which expert: every block sorts the whole call's choices into its own shared memory. That
// costs about a microsecond and saves a kernel in front of the others; the order is the same in every block,
// so what one kernel stores by slot another that has the same pieces finds by slot.
namespace arborist::kernels::cuda {

// At most this many (row, choice) pairs a piece: they are numbered in 16 bits. A call is cut into pieces of
// rows, one in each blockIdx.y; a piece has its own slots.
inline constexpr int kMaxPairs = 4096;
inline constexpr int kMaxCudaExperts = 1024;
inline constexpr int kMaxPieceRows = 512;

// A piece of MoeExpertsArgs, by value. Kernels get the first one and find their own.
struct ExpertsPiece {
  const float* x;
  int64_t x_stride;
  bool x_aligned;  // every row begins at a multiple of 16 bytes
  const int32_t* expert;
  int64_t expert_stride;
  const float* weight;
  int64_t weight_stride;
  const ExpertWeights* experts;
  int expert_count;
  int top_k;
  int hidden;
  int width;
  ExpertWeights shared;  // shared_width 0: none
  int shared_width;
  const int32_t* live_rows;  // of the whole call
  int all_rows;
  int first_row;  // in the whole call
  int rows;       // of this piece; the last may have fewer
  float* out;
  int64_t out_stride;
  std::byte* inner;         // [rows * top_k, width], by pair with bf16 weights, by slot with others
  std::byte* shared_inner;  // [rows, shared_width]
  int inner_bytes;          // of an element

  __device__ ExpertsPiece Mine() const {
    ExpertsPiece piece = *this;
    piece.first_row = static_cast<int>(blockIdx.y) * rows;
    piece.rows = min(rows, all_rows - piece.first_row);
    piece.x += piece.first_row * x_stride;
    piece.expert += piece.first_row * expert_stride;
    piece.weight += piece.first_row * weight_stride;
    piece.out += piece.first_row * out_stride;
    piece.inner += int64_t{piece.first_row} * top_k * width * inner_bytes;
    piece.shared_inner += int64_t{piece.first_row} * shared_width * inner_bytes;
    return piece;
  }
};

__device__ inline void PrefetchLine(const void* line) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(line));
}

// Neighbouring slots of one expert that are computed together; slots are (row, choice) pairs in ascending
// order of expert, then row. Items stand in ascending order of expert, those of the shared expert last; the
// shared expert's slots are the rows.
struct ExpertItem {
  uint16_t expert;  // expert_count: the shared one
  uint16_t first;   // slot
  uint16_t rows;    // 1..kItemRows
};

// Bounds that the host knows.
constexpr int MaxRoutedItems(int pairs, int experts, int item_rows) {
  return pairs < experts + pairs / item_rows ? pairs : experts + pairs / item_rows;
}
constexpr int RowTableBytes(int pairs, int experts, int item_rows) {
  return (4 * experts + 2 * pairs + 6 * MaxRoutedItems(pairs, experts, item_rows) + 15) / 16 * 16;
}

template <int kThreads, int kItemRows>
class RowTable {
 public:
  // Called by all threads of a block; ends with a barrier. `brief` is memory for 2 bytes a pair until then.
  __device__ RowTable(const ExpertsPiece& piece, void* memory, void* brief)
      : top_k_(static_cast<uint32_t>(piece.top_k)), shared_expert_(piece.expert_count) {
    auto* const cursor = static_cast<int*>(memory);  // first a count, then the next slot
    auto* const choice = static_cast<uint16_t*>(brief);
    pair_ = reinterpret_cast<uint16_t*>(cursor + piece.expert_count);
    items_ = reinterpret_cast<ExpertItem*>(pair_ + piece.rows * piece.top_k);
    live_ = piece.rows;
    if (piece.live_rows != nullptr) {
      live_ = min(live_, max(0, __ldcg(piece.live_rows) - piece.first_row));
    }
    const int tid = static_cast<int>(threadIdx.x);
    const int pairs = live_ * piece.top_k;
    if constexpr (kItemRows == 8) {  // of few rows
      if (piece.rows * piece.top_k <= 32) {
        SortFew(piece, pairs, choice);
        return;
      }
    }
    for (int e = tid; e < piece.expert_count; e += kThreads) {
      cursor[e] = 0;
    }
    __syncthreads();
    for (int p = tid; p < pairs; p += kThreads) {
      const uint16_t e = ChoiceOf(piece, p);
      choice[p] = e;
      if (e != kNoExpert) {
        atomicAdd(cursor + e, 1);
      }
    }
    __syncthreads();
    ListItems(piece, cursor);
    __syncthreads();
    if (tid < 32) {
      PlacePairs(choice, cursor, pairs, tid);
    }
    __syncthreads();
    CountItems(piece);
  }

  __device__ int live() const { return live_; }
  __device__ int routed_items() const { return routed_items_; }
  __device__ int items() const { return items_count_; }
  __device__ ExpertItem item(int i) const {
    if (i < routed_items_) {
      return items_[i];
    }
    const int first = (i - routed_items_) * kItemRows;
    return {static_cast<uint16_t>(shared_expert_), static_cast<uint16_t>(first),
            static_cast<uint16_t>(min(kItemRows, live_ - first))};
  }
  // row * top_k + choice of a routed slot.
  __device__ uint32_t pair(int slot) const { return pair_[slot]; }
  // Of an item's row in `inner` or `shared_inner`, where kernels that have pieces of other sizes find it too.
  __device__ int64_t inner_row(const ExpertItem& item, int i) const {
    return item.expert == shared_expert_ ? item.first + i : pair_[item.first + i];
  }
  __device__ int row(const ExpertItem& item, int i) const {
    return item.expert == shared_expert_ ? item.first + i : static_cast<int>(pair_[item.first + i] / top_k_);
  }

 private:
  static constexpr uint16_t kNoExpert = 0xffff;

  __device__ void CountItems(const ExpertsPiece& piece) {
    items_count_ = routed_items_ + (piece.shared_width > 0 ? (live_ + kItemRows - 1) / kItemRows : 0);
  }

  // What pair p chose. Ids that do not exist are skipped: they would lead out of bounds.
  __device__ uint16_t ChoiceOf(const ExpertsPiece& piece, int p) const {
    const int row = static_cast<int>(static_cast<uint32_t>(p) / top_k_);
    // Past the L1, which may hold what it had before a kernel that this one overlaps with.
    const int e = __ldcg(piece.expert + row * piece.expert_stride + (p - row * piece.top_k));
    if (e < 0 || e >= piece.expert_count) {
      return kNoExpert;
    }
    PrefetchLine(piece.experts + e);  // on the way while rows are sorted
    return static_cast<uint16_t>(e);
  }

  // At most 32 pairs: one warp counts for each how many stand before it. Ends with a barrier.
  __device__ void SortFew(const ExpertsPiece& piece, int pairs, uint16_t* choice) {
    __shared__ int items;
    const int lane = static_cast<int>(threadIdx.x);
    if (lane < 32) {
      const uint16_t e = lane < pairs ? ChoiceOf(piece, lane) : kNoExpert;
      const int key = e * 32 + lane;
      int slot = 0;
#pragma unroll
      for (int other = 0; other < 32; ++other) {
        slot += __shfl_sync(0xffffffffu, key, other) < key ? 1 : 0;
      }
      if (lane < pairs) {
        choice[slot] = e;
      }
      if (e != kNoExpert) {
        pair_[slot] = static_cast<uint16_t>(lane);
      }
      __syncwarp();
      const uint16_t own = lane < pairs ? choice[lane] : kNoExpert;  // of slot `lane`
      const unsigned same = __match_any_sync(0xffffffffu, own);
      const int before = __popc(same & ((1u << lane) - 1));
      const bool begins = own != kNoExpert && before % kItemRows == 0;
      const unsigned beginning = __ballot_sync(0xffffffffu, begins);
      if (begins) {
        items_[__popc(beginning & ((1u << lane) - 1))] = {
            own, static_cast<uint16_t>(lane), static_cast<uint16_t>(min(__popc(same) - before, kItemRows))};
      }
      if (lane == 0) {
        items = __popc(beginning);
      }
    }
    __syncthreads();
    routed_items_ = items;
    CountItems(piece);
  }

  // A prefix sum over the experts of their slots (lower half) and items (upper half).
  __device__ void ListItems(const ExpertsPiece& piece, int* cursor) {
    __shared__ uint32_t totals[kThreads / 32];
    const int tid = static_cast<int>(threadIdx.x);
    const int each = (piece.expert_count + kThreads - 1) / kThreads;
    const int begin = min(tid * each, piece.expert_count);
    const int end = min(begin + each, piece.expert_count);
    const auto of = [&](int e) {
      const auto count = static_cast<uint32_t>(cursor[e]);
      return count | (count + kItemRows - 1) / kItemRows << 16;
    };
    uint32_t mine = 0;
    for (int e = begin; e < end; ++e) {
      mine += of(e);
    }
    uint32_t before = mine;
    for (int distance = 1; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffu, before, distance);
      before += tid % 32 >= distance ? other : 0;
    }
    if (tid % 32 == 31) {
      totals[tid / 32] = before;
    }
    before -= mine;
    __syncthreads();
    uint32_t all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      before += w < tid / 32 ? totals[w] : 0;
      all += totals[w];
    }
    routed_items_ = static_cast<int>(all >> 16);
    for (int e = begin; e < end; ++e) {
      const uint32_t add = of(e);
      const uint32_t count = add & 0xffffu;
      const uint32_t first = before & 0xffffu;
      for (uint32_t i = 0; i < add >> 16; ++i) {
        items_[(before >> 16) + i] = {static_cast<uint16_t>(e), static_cast<uint16_t>(first + i * kItemRows),
                                      static_cast<uint16_t>(min(count - i * kItemRows, kItemRows))};
      }
      cursor[e] = static_cast<int>(first);
      before += add;
    }
  }

  // One warp, 32 pairs at a time, so that the order is fixed.
  __device__ void PlacePairs(const uint16_t* choice, int* cursor, int pairs, int lane) {
    for (int base = 0; base < pairs; base += 32) {
      const uint16_t e = base + lane < pairs ? choice[base + lane] : kNoExpert;
      const unsigned same = __match_any_sync(0xffffffffu, e);
      const unsigned lower = same & ((1u << lane) - 1);
      const int begin = e != kNoExpert ? cursor[e] : 0;
      __syncwarp();
      if (e != kNoExpert) {
        pair_[begin + __popc(lower)] = static_cast<uint16_t>(base + lane);
        if (lower == 0) {
          cursor[e] = begin + __popc(same);
        }
      }
      __syncwarp();
    }
  }

  uint32_t top_k_;
  int shared_expert_;
  int live_ = 0;
  int routed_items_ = 0;
  int items_count_ = 0;
  uint16_t* pair_;
  ExpertItem* items_;
};

}  // namespace arborist::kernels::cuda
