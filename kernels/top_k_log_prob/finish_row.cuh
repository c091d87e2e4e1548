#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/top_k_log_prob/candidate_buffer.cuh"
#include "kernels/top_k_log_prob/plain_rows.cuh"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"
#include "kernels/vocabulary_row/exp_sum.cuh"

namespace arborist::kernels::cuda {

// One block finishes a row: its candidates in order, the sum over all tiles, the edges.

inline constexpr int64_t kMaxRounds = 64;  // of 8192 ids: a row's maxima fit shared memory

// sorted[0..k-1]: the best of the buffer's `held` >= k keys, in order. Four lanes count for each key how many
// are larger.
__device__ inline void SortBest(const CandidateBuffer& buffer, int32_t held, int32_t k, uint64_t* sorted) {
  const auto quarter = static_cast<int32_t>(threadIdx.x % 4);
  for (int32_t base = 0; base < held; base += kBufferThreads / 4) {
    const int32_t at = base + static_cast<int32_t>(threadIdx.x / 4);
    const uint64_t own = at < held ? buffer.key[at] : 0;
    int32_t rank = 0;
#pragma unroll 4
    for (int32_t i = quarter; i < held; i += 4) {
      rank += buffer.key[i] > own ? 1 : 0;
    }
    rank += __shfl_xor_sync(kAllLanes, rank, 1);
    rank += __shfl_xor_sync(kAllLanes, rank, 2);
    if (quarter == 0 && at < held && rank < k) {
      sorted[rank] = own;
    }
  }
  __syncthreads();
}

struct FinishMemory {
  uint64_t sorted[kTopKLogProbMaxK];
  float warp_sum[kBufferWarps];
  float log_sum;
};

// What a row gets and from what.
struct RowOutput {
  TokenId* token;
  float* log_prob;
  const TopKTileSum* sums;
  int32_t tiles;
  int32_t k;
  float beta;
  bool noise;
};

// A row's sums, each thread's share in registers: read early, needed late.
class TileSums {
 public:
  __device__ explicit TileSums(const RowOutput& row) {
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      const int32_t tile = i * kBufferThreads + static_cast<int32_t>(threadIdx.x);
      share_[i] = tile < row.tiles ? row.sums[tile] : TopKTileSum{0.0f, 0.0f};
    }
  }
  // Of this thread's share.
  __device__ bool Finite() const {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      finite &= share_[i].sum * 0.0f == 0.0f;
    }
    return finite;
  }
  // In all threads: sum of exp((x - max) * beta). Each thread adds its tiles in ascending order, threads join
  // in a fixed tree.
  __device__ float Total(float max, float scale, bool noise, float* warp_sum) const {
    float own = 0;
#pragma unroll
    for (int i = 0; i < kShare; ++i) {
      own += share_[i].sum == 0.0f ? 0.0f
                                   : share_[i].sum * FastExp2(ShiftOfTile(share_[i].max, max, scale, !noise));
    }
    own = SumOfWarp(own);
    if (threadIdx.x % 32 == 0) {
      warp_sum[threadIdx.x / 32] = own;
    }
    __syncthreads();
    static_assert(kBufferWarps == 8);
    return ((warp_sum[0] + warp_sum[1]) + (warp_sum[2] + warp_sum[3])) +
           ((warp_sum[4] + warp_sum[5]) + (warp_sum[6] + warp_sum[7]));
  }

 private:
  static constexpr int kShare = static_cast<int>(kMaxRounds * kTopKRound / kTopKTile / kBufferThreads);
  TopKTileSum share_[kShare];
};

__device__ inline void WriteBrokenRow(const RowOutput& row) {
  if (static_cast<int32_t>(threadIdx.x) < row.k) {
    row.token[threadIdx.x] = TokenId{0};
    row.log_prob[threadIdx.x] = __uint_as_float(0x7fc00000u);
  }
}

// The k best of the buffer's `held` keys in order, the sum over all tiles, the edges.
__device__ __noinline__ inline void WriteRow(const CandidateBuffer& buffer, int32_t held,
                                             const TileSums& sums, const RowOutput& row,
                                             FinishMemory& memory) {
  SortBest(buffer, held, row.k, memory.sorted);
  const float max = ValueOfRankKey(memory.sorted[0]);
  const float sum = sums.Total(max, row.beta * kLog2OfE, row.noise, memory.warp_sum);
  if (threadIdx.x == 0) {
    memory.log_sum = LogOfNormal(sum);
  }
  __syncthreads();
  if (static_cast<int32_t>(threadIdx.x) < row.k) {
    const uint64_t own = memory.sorted[threadIdx.x];
    const float edge = (ValueOfRankKey(own) - max) * row.beta - memory.log_sum;
    row.token[threadIdx.x] = TokenId{IdOfRankKey(own)};
    row.log_prob[threadIdx.x] = fminf(fmaxf(edge, -1e30f), 0.0f);  // EdgeLogProb
  }
}

}  // namespace arborist::kernels::cuda
