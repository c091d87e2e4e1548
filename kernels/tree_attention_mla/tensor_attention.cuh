#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/tree_attention_mla/tensor_instructions.cuh"
#include "kernels/tree_attention_mla/work_list.h"

// The bf16 kernel. Keys and latent columns lie along the 16 rows of mma.sync and queries along its 8 columns
// (S^T = K Q^T, O^T = V^T P^T), so that queries need no padding beyond 16, and one tile of keys in shared
// memory serves both products. A block works on one item: up to `queries` queries of one sequence against the
// keys of one split, or of one row's tail, in tiles of 16 keys. Of its 8 warps, warp w multiplies the columns
// [w % 4] quarter of the width with the queries of half w / 4 (Q stays in registers; the quarters are added
// in shared memory), and then owns latent / 8 columns of O^T for all queries. So what a query's column holds
// never depends on other columns.
namespace arborist::kernels::cuda {

constexpr int kTensorThreads = 256;
constexpr int kTileKeys = 16;
constexpr int kStages = 4;
constexpr int kMostKeys = SplitLength(2) * kPageRows;  // of an item
constexpr int kQuarters = 4;
constexpr int kHalves = 2;
// The reference maximum of a query moves only when a score exceeds it by 2^8: p stays below 256, which bf16
// and fp32 hold as well, and O is seldom rescaled. A function of the query's own scores.
constexpr float kSlack = 8;

// One item of work; split_blocks 0 = a tail.
struct Item {
  int32_t first_row;
  int64_t query;  // the first
  int32_t queries;
  int32_t split_blocks;
  int32_t split;
};

template <int latent, int rope>
struct Keys {
  static constexpr int kWidth = latent + rope;
  static constexpr int kStride = kWidth + 8;  // elements; rows then start in different banks
  static constexpr int kStageBytes = kTileKeys * kStride * 2;
  static constexpr int kSteps = kWidth / 16;
  static constexpr int kQuarterSteps = (kSteps + kQuarters - 1) / kQuarters;
  static constexpr int kColumnTiles = latent / 16 / 8;  // of 16 columns, a warp
};

// Shared memory of a block, in this order.
template <int latent, int rope, int queries>
struct Layout {
  static constexpr int kKeys = 0;
  static constexpr int kScores = kKeys + kStages * Keys<latent, rope>::kStageBytes;
  static constexpr int kWeights = kScores + kQuarters * queries * kTileKeys * 4;
  static constexpr int kWeightStride = kTileKeys + 8;  // elements
  static constexpr int kAlpha = kWeights + queries * kWeightStride * 2;
  static constexpr int kLimit = kAlpha + queries * 4;
  static constexpr int kSlots = kLimit + queries * 4;
  static constexpr int kBytes = kSlots + kMostKeys * 4;
  static_assert(kBytes <= 99 * 1024, "what sm_120 has for a block");
};

// Scores lie as [quarter][row][16 keys]; row r of eight is query r ^ (r / 2 % 2), and the four groups of four
// keys are exchanged by twos in rows 4..7: writes of mma fragments and reads of four keys are then free of
// bank conflicts.
constexpr int ScoreRowQuery(int r) { return r ^ ((r >> 1) & 1); }
constexpr int ScoreGroup(int r, int group) { return group ^ (((r >> 2) & 1) * 2); }

template <int latent, int rope, int queries>
class TensorItem {
  using K = Keys<latent, rope>;
  using L = Layout<latent, rope, queries>;
  static constexpr int kOwnTiles = queries / 8 / kHalves;  // of 8 queries, in the first product
  static constexpr int kQueryTiles = queries / 8;

 public:
  __device__ TensorItem(const AttentionProblem& p, const Item& item, unsigned char* memory)
      : p_(p),
        item_(item),
        memory_(memory),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32) {}

  __device__ void Run() {
    FindKeys();
    __syncthreads();
    const int keys = MostKeys();
    const int tiles = (keys + kTileKeys - 1) / kTileKeys;
    if (tiles == 0) {
      return;
    }
    for (int tile = 0; tile < kStages - 1; ++tile) {
      LoadTile(tile, keys);
    }
    LoadQueries();
    WaitCopies<kStages - 2>();
    __syncthreads();
    Score(0);
    StoreScores();
    for (int tile = 0; tile < tiles; ++tile) {
      WaitCopies<kStages - 3>();
      __syncthreads();  // the scores are there, tile + 1 is, and nobody reads tile - 1
      LoadTile(tile + kStages - 1, keys);
      const bool moved = Softmax(tile);
      if (tile + 1 < tiles) {
        Score(tile + 1);
      }
      const bool rescale = __syncthreads_or(moved) != 0;  // the weights are there, the scores read
      if (tile + 1 < tiles) {
        StoreScores();
      }
      Accumulate(tile, rescale);
    }
    WaitCopies<0>();
    Finish();
  }

 private:
  template <typename T>
  __device__ T* At(int offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  // How many keys each query has here, and where they lie.
  __device__ void FindKeys() {
    const int32_t split = item_.split_blocks;
    if (thread_ < queries) {
      int32_t limit = 0;
      if (thread_ < item_.queries) {
        const auto row = static_cast<int32_t>((item_.query + thread_) / p_.heads);
        const int32_t blocks = p_.Blocks(row);
        if (split == 0) {
          limit = p_.TailCount(row);
        } else if (CudaSplitBlocks(blocks) == split) {
          limit = min(max(blocks - item_.split * split, 0), split) * kPageRows;
        }
      }
      At<int32_t>(L::kLimit)[thread_] = limit;
    }
    const int32_t first = item_.split * split * kPageRows;
    const int32_t keys =
        split == 0 ? p_.TailCount(item_.first_row) : min(split, p_.blocks - item_.split * split) * kPageRows;
    for (int32_t i = thread_; i < keys; i += kTensorThreads) {
      const int64_t slot = split == 0 ? p_.TailSlot(item_.first_row, i)
                                      : p_.PrefixSlot(p_.Sequence(item_.first_row), first + i);
      At<int32_t>(L::kSlots)[i] = static_cast<int32_t>(slot);
    }
  }

  __device__ int MostKeys() const {
    int32_t most = 0;
    for (int i = lane_; i < queries; i += 32) {
      most = max(most, At<int32_t>(L::kLimit)[i]);
    }
    return __reduce_max_sync(0xffffffffu, most);
  }

  // Sixteen threads a key. Beyond the last key stand zeros: their weight is zero, and so must be 0 * value.
  __device__ void LoadTile(int tile, int keys) {
    const int key = tile * kTileKeys + thread_ / 16;
    if (tile * kTileKeys < keys) {
      const bool valid = key < keys;
      const int64_t slot = valid ? At<int32_t>(L::kSlots)[key] : 0;
      const auto* from = static_cast<const uint16_t*>(p_.cache) + slot * K::kWidth + thread_ % 16 * 8;
      const uint32_t to = SharedAddress(memory_ + L::kKeys + tile % kStages * K::kStageBytes) +
                          thread_ / 16 * K::kStride * 2 + thread_ % 16 * 16;
#pragma unroll
      for (int chunk = 0; chunk < K::kWidth / 8; chunk += 16) {
        if (chunk + 16 <= K::kWidth / 8 || chunk + thread_ % 16 < K::kWidth / 8) {
          CopyAsync(to + chunk * 16, from + chunk * 8, valid);
        }
      }
    }
    CommitCopies();
  }

  __device__ void LoadQueries() {
    const int half = warp_ / kQuarters;
#pragma unroll
    for (int step = 0; step < K::kQuarterSteps; ++step) {
      const int at = warp_ % kQuarters * K::kQuarterSteps + step;
#pragma unroll
      for (int i = 0; i < kOwnTiles; ++i) {
        const int query = (half * kOwnTiles + i) * 8 + lane_ / 4;
        const bool valid = query < item_.queries && at < K::kSteps;
        const auto* from = reinterpret_cast<const uint32_t*>(
            p_.query_bf16 + (item_.query + query) * K::kWidth + at * 16 + lane_ % 4 * 2);
        query_[step][i][0] = valid ? from[0] : 0;
        query_[step][i][1] = valid ? from[4] : 0;
      }
    }
  }

  // This warp's quarter of the scores of one tile.
  __device__ void Score(int tile) {
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
      score_[i][0] = score_[i][1] = score_[i][2] = score_[i][3] = 0;
    }
    const int first = warp_ % kQuarters * K::kQuarterSteps;
    const uint32_t from = SharedAddress(memory_ + L::kKeys + tile % kStages * K::kStageBytes) +
                          (lane_ % 16 * K::kStride + lane_ / 16 * 8 + first * 16) * 2;
#pragma unroll
    for (int step = 0; step < K::kQuarterSteps; ++step) {
      if (K::kSteps % kQuarters == 0 || first + step < K::kSteps) {
        uint32_t keys[4];
        LoadMatrices(keys, from + step * 32);
#pragma unroll
        for (int i = 0; i < kOwnTiles; ++i) {
          MultiplyAdd(score_[i], keys, query_[step][i][0], query_[step][i][1]);
        }
      }
    }
  }

  __device__ void StoreScores() {
    const int r =
        ScoreRowQuery(lane_ % 4 * 2);  // the row of query lane % 4 * 2: the exchange is its own inverse
    const int key = lane_ / 4;
    const int at = r * kTileKeys + ScoreGroup(r, key / 4) * 4 + key % 4;
    float* to =
        At<float>(L::kScores) + (warp_ % kQuarters * queries + warp_ / kQuarters * kOwnTiles * 8) * kTileKeys;
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
      to[i * 8 * kTileKeys + at] = score_[i][0];
      to[i * 8 * kTileKeys + (at ^ kTileKeys)] = score_[i][1];
      to[i * 8 * kTileKeys + (at ^ 8)] = score_[i][2];
      to[i * 8 * kTileKeys + (at ^ 8 ^ kTileKeys)] = score_[i][3];
    }
  }

  // Four threads a query, four keys each. True where the query's reference maximum moved.
  __device__ bool Softmax(int tile) {
    const int row = thread_ / 4;
    if (row >= queries) {
      return false;
    }
    const int query = row / 8 * 8 + ScoreRowQuery(row % 8);
    const int group = thread_ % 4;
    const float* from = At<float>(L::kScores) + row * kTileKeys + ScoreGroup(row % 8, group) * 4;
    const int first = tile * kTileKeys + group * 4;
    const int limit = At<int32_t>(L::kLimit)[query];
    float score[4] = {0, 0, 0, 0};
#pragma unroll
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      const auto part = *reinterpret_cast<const float4*>(from + quarter * queries * kTileKeys);
      score[0] += part.x;
      score[1] += part.y;
      score[2] += part.z;
      score[3] += part.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[i] = first + i < limit ? score[i] * p_.scale_log2 : -INFINITY;
    }

    const unsigned mask = 0xffffffffu;
    float most = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
    most = fmaxf(most, __shfl_xor_sync(mask, most, 1));
    most = fmaxf(most, __shfl_xor_sync(mask, most, 2));
    float alpha = 1;
    const bool moved = most > max_ + kSlack;
    if (moved) {
      alpha = Exp2(max_ - most);  // 0 at first
      max_ = most;
      sum_ *= alpha;
    }
    const float reference = max_ == -INFINITY ? 0 : max_;  // no key yet
    const __nv_bfloat162 weight[2] = {
        __floats2bfloat162_rn(Exp2(score[0] - reference), Exp2(score[1] - reference)),
        __floats2bfloat162_rn(Exp2(score[2] - reference), Exp2(score[3] - reference))};
    sum_ += (__low2float(weight[0]) + __high2float(weight[0])) +
            (__low2float(weight[1]) + __high2float(weight[1]));
    *reinterpret_cast<uint2*>(At<__nv_bfloat16>(L::kWeights) + query * L::kWeightStride + group * 4) =
        *reinterpret_cast<const uint2*>(weight);
    if (group == 0) {
      At<float>(L::kAlpha)[query] = alpha;
    }
    return moved;
  }

  // O^T += V^T P^T for this warp's columns.
  __device__ void Accumulate(int tile, bool rescale) {
    if (rescale) {
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        const auto alpha = *reinterpret_cast<const float2*>(At<float>(L::kAlpha) + n * 8 + lane_ % 4 * 2);
#pragma unroll
        for (int m = 0; m < K::kColumnTiles; ++m) {
          out_[m][n][0] *= alpha.x;
          out_[m][n][1] *= alpha.y;
          out_[m][n][2] *= alpha.x;
          out_[m][n][3] *= alpha.y;
        }
      }
    }
    uint32_t weight[kQueryTiles / 2][4];
    const uint32_t weights = SharedAddress(memory_ + L::kWeights) +
                             ((lane_ % 8 + lane_ / 16 * 8) * L::kWeightStride + lane_ / 8 % 2 * 8) * 2;
#pragma unroll
    for (int n = 0; n < kQueryTiles / 2; ++n) {
      LoadMatrices(weight[n], weights + n * 16 * L::kWeightStride * 2);
    }
    const uint32_t from =
        SharedAddress(memory_ + L::kKeys + tile % kStages * K::kStageBytes) +
        ((lane_ % 8 + lane_ / 16 * 8) * K::kStride + lane_ / 8 % 2 * 8 + warp_ * K::kColumnTiles * 16) * 2;
#pragma unroll
    for (int m = 0; m < K::kColumnTiles; ++m) {
      uint32_t values[4];
      LoadMatricesTransposed(values, from + m * 32);
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        MultiplyAdd(out_[m][n], values, weight[n / 2][n % 2 * 2], weight[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

  __device__ void Finish() {
    const int32_t part = item_.split_blocks == 0 ? Splits(p_.Blocks(item_.first_row)) : item_.split;
    const int32_t* limit = At<int32_t>(L::kLimit);
    const int row = thread_ / 4;
    if (row < queries) {
      const unsigned mask = 0xffffffffu;
      sum_ += __shfl_xor_sync(mask, sum_, 1);
      sum_ += __shfl_xor_sync(mask, sum_, 2);
      const int query = row / 8 * 8 + ScoreRowQuery(row % 8);
      if (thread_ % 4 == 0 && limit[query] > 0) {
        reinterpret_cast<float2*>(p_.max_sum)[p_.Part(item_.query + query, part)] = {max_, sum_};
      }
    }
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = n * 8 + lane_ % 4 * 2 + i;
        if (limit[query] > 0) {
          float* to = p_.acc + p_.Part(item_.query + query, part) * p_.acc_stride +
                      warp_ * K::kColumnTiles * 16 + lane_ / 4;
#pragma unroll
          for (int m = 0; m < K::kColumnTiles; ++m) {
            to[m * 16] = out_[m][n][i];
            to[m * 16 + 8] = out_[m][n][i + 2];
          }
        }
      }
    }
  }

  const AttentionProblem& p_;
  const Item& item_;
  unsigned char* const memory_;
  const int thread_;
  const int lane_;
  const int warp_;
  uint32_t query_[K::kQuarterSteps][kOwnTiles][2];
  float score_[kOwnTiles][4];
  float out_[K::kColumnTiles][kQueryTiles][4] = {};
  float max_ = -INFINITY;
  float sum_ = 0;
};

__device__ inline Item MakeItem(const AttentionProblem& p, const Run& run, int32_t index) {
  for (int i = 0; i < 3; ++i) {
    const int32_t items = run.splits[i] * run.tiles;
    if (index < items) {
      const int32_t first = index % run.tiles * p.queries_per_tile;
      return {.first_row = run.first_row,
              .query = int64_t{run.first_row} * p.heads + first,
              .queries = min(p.queries_per_tile, run.rows * p.heads - first),
              .split_blocks = SplitLength(i),
              .split = index / run.tiles};
    }
    index -= items;
  }
  const int32_t tiles = CeilDiv32(p.heads, p.queries_per_tail);
  const int32_t row = run.first_row + index / tiles;
  const int32_t first = index % tiles * p.queries_per_tail;
  return {.first_row = row,
          .query = int64_t{row} * p.heads + first,
          .queries = min(p.queries_per_tail, p.heads - first),
          .split_blocks = 0,
          .split = 0};
}

// Blocks take items until none is left.
template <int latent, int rope, int tile_queries, int tail_queries, int blocks_per_sm>
__global__ void __launch_bounds__(kTensorThreads, blocks_per_sm) TensorAttention(const AttentionProblem p) {
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ Item item;
  __shared__ int32_t taken;
  auto& list = *reinterpret_cast<WorkList*>(p.list);
  const int32_t items = list.items;
  const int32_t runs = list.runs;
  for (;;) {
    if (threadIdx.x == 0) {
      taken = atomicAdd(&list.ticket, 1);
    }
    __syncthreads();
    const int32_t index = taken;
    if (index >= items) {
      return;
    }
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < runs; i += kTensorThreads) {
      const Run& run = list.run[i];
      if (index >= run.offset && index < run.offset + run.items) {
        item = MakeItem(p, run, index - run.offset);
      }
    }
    __syncthreads();
    if (item.split_blocks == 0) {
      TensorItem<latent, rope, tail_queries>(p, item, memory).Run();
    } else {
      TensorItem<latent, rope, tile_queries>(p, item, memory).Run();
    }
    __syncthreads();
  }
}

}  // namespace arborist::kernels::cuda
