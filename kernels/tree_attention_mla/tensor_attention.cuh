#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/tree_attention_mla/tensor_instructions.cuh"
#include "kernels/tree_attention_mla/tensor_layout.cuh"
#include "kernels/tree_attention_mla/tensor_steps.cuh"
#include "kernels/tree_attention_mla/work_list.h"

// The bf16 kernel. Keys and latent columns lie along the 16 rows of mma.sync and queries along its 8 columns
// (S^T = K Q^T, O^T = V^T P^T), so that queries need no padding beyond 16, and one tile of keys in shared
// memory serves both products. A block works on one item: up to `queries` queries of one sequence against the
// keys of one split, or of one row's tail, in tiles of 16 keys. Of its 8 warps, warp w multiplies the columns
// [w % 4] quarter of the width with the queries of half w / 4 (Q stays in registers; the quarters are added
// in shared memory), and then owns latent / 8 columns of O^T for all queries. So what a query's column holds
// never depends on other columns.
namespace arborist::kernels::cuda {

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

  // One part: of a split, or of tails.
  template <bool tail>
  __device__ void Run() {
    const int steps = ListSteps<tail>(item_);
    if (steps > 0) {
      BeginKeys(steps);
      LoadQueries();
      Reduce<tail>(steps);
      StoreSums();
      StoreParts();
    }
  }

 private:
  __device__ void BeginKeys(int steps) {
    slot_ = Slot(0, steps);
    for (int step = 0; step < kStages - 1; ++step) {
      LoadKeys(step, steps);
    }
  }

  template <bool tail>
  __device__ void Reduce(int steps) {
    WaitCopies<kStages - 2>();
    __syncthreads();
    ClearScores();
    LoadScoreKeys(0, 0);
#pragma unroll
    for (int part = 0; part < K::kQuarterSteps; ++part) {
      ScorePart(0, part);
    }
    StoreScores();
    for (int step = 0; step < steps; ++step) {
      WaitCopies<kStages - 3>();
      __syncthreads();  // the scores are there, the keys of step + 1 are, and nobody reads those of step - 1
      LoadKeys(step + kStages - 1, steps);
      // Behind the last step this multiplies what happens to lie there, and nobody looks at the product.
      const bool moved = SoftmaxAndNextScores<tail>(step);
      const bool rescale = __syncthreads_or(moved) != 0;  // the weights are there, the scores read
      StoreScores();
      Accumulate<tail>(step, rescale);
    }
    WaitCopies<0>();
  }

  template <typename T>
  __device__ T* At(int offset) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

  template <bool tail>
  __device__ int ListSteps(const Item& item) {
    const StepList list = {At<int32_t>(L::kLimit), At<int32_t>(L::kPart), At<int32_t>(L::kSlots),
                           At<int32_t>(L::kSteps)};
    if constexpr (tail) {
      return ListTails(p_, item, list, At<int32_t>(L::kKeys));
    }
    ListSplit(p_, item, list);
    __syncthreads();
    int32_t most = 0;
    for (int i = lane_; i < queries; i += 32) {
      most = max(most, list.limit[i]);
    }
    return __reduce_max_sync(0xffffffffu, most) / kTileKeys;  // whole blocks
  }

  // The tiles of eight queries that a step is for: all, or those of one row.
  struct Owners {
    int first;
    int count;
    __device__ bool Have(int tile) const {
      return static_cast<unsigned>(tile - first) < static_cast<unsigned>(count);
    }
  };
  template <bool tail>
  __device__ Owners OwnersOf(int step) const {
    const int32_t owner = tail ? At<int32_t>(L::kSteps)[step] / 16 : 0;
    const int of_row = p_.heads / 8;
    return owner == 0 ? Owners{0, kQueryTiles} : Owners{(owner - 1) * of_row, of_row};
  }
  // Index of a step's sixteen keys among the keys of those whom it is for.
  template <bool tail>
  __device__ int TileOf(int step) const {
    return tail ? At<int32_t>(L::kSteps)[step] % 16 : step;
  }

  // Of this thread's key of a step; sixteen threads a key.
  __device__ int32_t Slot(int step, int steps) const {
    return step < steps ? At<int32_t>(L::kSlots)[step * kTileKeys + thread_ / 16] : -1;
  }

  // Beyond the last key stand zeros: their weight is zero, and so must be 0 * value.
  __device__ void LoadKeys(int step, int steps) {
    if (step < steps) {
      const bool valid = slot_ >= 0;
      const auto* from =
          static_cast<const uint16_t*>(p_.cache) + int64_t{valid ? slot_ : 0} * K::kWidth + thread_ % 16 * 8;
      const uint32_t to = SharedAddress(memory_ + L::kKeys) + step % kStages * K::kStageBytes +
                          thread_ / 16 * K::kStride * 2 + thread_ % 16 * 16;
#pragma unroll
      for (int chunk = 0; chunk < K::kWidth / 8; chunk += 16) {
        if (chunk + 16 <= K::kWidth / 8 || chunk + thread_ % 16 < K::kWidth / 8) {
          CopyAsync(to + chunk * 16, from + chunk * 8, valid);
        }
      }
    }
    CommitCopies();
    slot_ = Slot(step + 1, steps);  // long before it is needed
  }

  __device__ void LoadQueries() {
    const int half = warp_ / kQuarters;
#pragma unroll
    for (int step = 0; step < K::kQuarterSteps; ++step) {
      const int at = warp_ % kQuarters * K::kQuarterSteps + step;
#pragma unroll
      for (int i = 0; i < kOwnTiles; ++i) {
        const int query = (half * kOwnTiles + i) * 8 + lane_ / 4;
        const uint2 pair = query < item_.queries && at < K::kSteps
                               ? reinterpret_cast<const uint2*>(
                                     p_.query_bf16)[((item_.query + query) / 8 * K::kSteps + at) * 32 + lane_]
                               : uint2{0, 0};
        query_[step][i][0] = pair.x;
        query_[step][i][1] = pair.y;
      }
    }
  }

  __device__ void ClearScores() {
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
      score_[i][0] = score_[i][1] = score_[i][2] = score_[i][3] = 0;
    }
  }

  // Where the width is no multiple of 64 columns the last quarter has fewer parts.
  __device__ bool HasPart(int part) const {
    return K::kSteps % kQuarters == 0 || warp_ % kQuarters * K::kQuarterSteps + part < K::kSteps;
  }

  // 16 columns of this warp's quarter of a step's keys, for ScorePart. Behind the last part lie keys of
  // another tile, which may be on their way: nobody would use them, but racecheck is right to complain.
  __device__ void LoadScoreKeys(int step, int part) {
    if (!HasPart(part)) {
      return;
    }
    const int first = warp_ % kQuarters * K::kQuarterSteps;
    LoadMatrices(keys_[part % 2], SharedAddress(memory_ + L::kKeys) + step % kStages * K::kStageBytes +
                                      (lane_ % 16 * K::kStride + lane_ / 16 * 8 + first * 16) * 2 +
                                      part * 32);
  }

  // Their part of the scores. The keys of the part after are on their way meanwhile.
  __device__ void ScorePart(int step, int part) {
    if (part + 1 < K::kQuarterSteps) {
      LoadScoreKeys(step, part + 1);
    }
    if (HasPart(part)) {
#pragma unroll
      for (int i = 0; i < kOwnTiles; ++i) {
        MultiplyAdd(score_[i], keys_[part % 2], query_[part][i][0], query_[part][i][1]);
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

  // Weights of a step on the ordinary units, the next step's scores on the tensor cores; the two are
  // independent and written in turns, because a warp issues in order. Four threads a query, four keys each.
  // True where the query's reference maximum moved.
  template <bool tail>
  __device__ bool SoftmaxAndNextScores(int step) {
    constexpr int kThird = K::kQuarterSteps / 3;
    LoadScoreKeys(step + 1, 0);
    const int row = thread_ / 4;
    const bool active = row < queries;
    const int query = active ? row / 8 * 8 + ScoreRowQuery(row % 8) : 0;
    const int group = thread_ % 4;
    const float* from =
        At<float>(L::kScores) + (active ? row : 0) * kTileKeys + ScoreGroup(row % 8, group) * 4;
    const int left = OwnersOf<tail>(step).Have(query / 8)
                         ? At<int32_t>(L::kLimit)[query] - TileOf<tail>(step) * kTileKeys - group * 4
                         : 0;
    float4 quarters[kQuarters];
#pragma unroll
    for (int quarter = 0; quarter < kQuarters; ++quarter) {
      quarters[quarter] = *reinterpret_cast<const float4*>(from + quarter * queries * kTileKeys);
    }
    ClearScores();
#pragma unroll
    for (int part = 0; part < kThird; ++part) {
      ScorePart(step + 1, part);
    }
    float score[4] = {quarters[0].x, quarters[0].y, quarters[0].z, quarters[0].w};
#pragma unroll
    for (int quarter = 1; quarter < kQuarters; ++quarter) {
      score[0] += quarters[quarter].x;
      score[1] += quarters[quarter].y;
      score[2] += quarters[quarter].z;
      score[3] += quarters[quarter].w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      score[i] = i < left ? score[i] * p_.scale_log2 : -INFINITY;
    }
    float most = fmaxf(fmaxf(score[0], score[1]), fmaxf(score[2], score[3]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
#pragma unroll
    for (int part = kThird; part < 2 * kThird; ++part) {
      ScorePart(step + 1, part);
    }
    const bool moved = active && most > max_ + kSlack;
    const float alpha = moved ? Exp2(max_ - most) : 1;  // 0 at first
    max_ = moved ? most : max_;
    const float reference = max_ == -INFINITY ? 0 : max_;  // no key yet
    const __nv_bfloat162 weight[2] = {
        __floats2bfloat162_rn(Exp2(score[0] - reference), Exp2(score[1] - reference)),
        __floats2bfloat162_rn(Exp2(score[2] - reference), Exp2(score[3] - reference))};
#pragma unroll
    for (int part = 2 * kThird; part < K::kQuarterSteps; ++part) {
      ScorePart(step + 1, part);
    }
    sum_ = sum_ * alpha + ((__low2float(weight[0]) + __high2float(weight[0])) +
                           (__low2float(weight[1]) + __high2float(weight[1])));
    if (active) {
      *reinterpret_cast<uint2*>(At<__nv_bfloat16>(L::kWeights) + query * L::kWeightStride + group * 4) =
          *reinterpret_cast<const uint2*>(weight);
      if (group == 0) {
        At<float>(L::kAlpha)[query] = alpha;
      }
    }
    return moved;
  }

  // O^T += V^T P^T for this warp's columns.
  template <bool tail>
  __device__ void Accumulate(int step, bool rescale) {
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
    const Owners owners = OwnersOf<tail>(step);
    uint32_t weight[kQueryTiles / 2][4];
    const uint32_t weights = SharedAddress(memory_ + L::kWeights) +
                             ((lane_ % 8 + lane_ / 16 * 8) * L::kWeightStride + lane_ / 8 % 2 * 8) * 2;
#pragma unroll
    for (int n = 0; n < kQueryTiles / 2; ++n) {
      LoadMatrices(weight[n], weights + n * 16 * L::kWeightStride * 2);
    }
    const uint32_t from =
        SharedAddress(memory_ + L::kKeys + step % kStages * K::kStageBytes) +
        ((lane_ % 8 + lane_ / 16 * 8) * K::kStride + lane_ / 8 % 2 * 8 + warp_ * K::kColumnTiles * 16) * 2;
#pragma unroll
    for (int m = 0; m < K::kColumnTiles; ++m) {
      uint32_t values[4];
      LoadMatricesTransposed(values, from + m * 32);
#pragma unroll
      for (int n = 0; n < kQueryTiles; ++n) {
        if (tail && !owners.Have(n)) {
          continue;  // all weights are zero
        }
        MultiplyAdd(out_[m][n], values, weight[n / 2][n % 2 * 2], weight[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

  __device__ int64_t PartOf(int query) const {
    return p_.Part(item_.query + query, At<int32_t>(L::kPart)[query]);
  }

  __device__ void StoreSums() {
    const int row = thread_ / 4;
    if (row < queries) {
      const unsigned mask = 0xffffffffu;
      sum_ += __shfl_xor_sync(mask, sum_, 1);
      sum_ += __shfl_xor_sync(mask, sum_, 2);
      const int query = row / 8 * 8 + ScoreRowQuery(row % 8);
      if (thread_ % 4 == 0 && At<int32_t>(L::kLimit)[query] > 0) {
        reinterpret_cast<float2*>(p_.max_sum)[PartOf(query)] = {max_, sum_};
      }
    }
  }

  __device__ void StoreParts() {
    const int32_t* limit = At<int32_t>(L::kLimit);
#pragma unroll
    for (int n = 0; n < kQueryTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = n * 8 + lane_ % 4 * 2 + i;
        if (limit[query] > 0) {
          StorePart(p_.acc + PartOf(query) * p_.acc_stride + warp_ * K::kColumnTiles * 16, n, i);
        }
      }
    }
  }

  // This lane's columns of a query, see PartColumn.
  __device__ void StorePart(float* to, int n, int i) const {
    const int row = lane_ / 4;
    if constexpr (K::kPacked) {
#pragma unroll
      for (int m = 0; m < K::kColumnTiles; m += 2) {
        *reinterpret_cast<float4*>(to + m * 16 + row * 4) = {out_[m][n][i], out_[m][n][i + 2],
                                                             out_[m + 1][n][i], out_[m + 1][n][i + 2]};
      }
    } else {
#pragma unroll
      for (int m = 0; m < K::kColumnTiles; ++m) {
        to[m * 16 + row] = out_[m][n][i];
        to[m * 16 + 8 + row] = out_[m][n][i + 2];
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
  uint32_t keys_[2][4];
  float score_[kOwnTiles][4];
  float out_[K::kColumnTiles][kQueryTiles][4] = {};
  float max_ = -INFINITY;
  float sum_ = 0;
  int32_t slot_ = -1;  // of this thread's key in the next tile to load, -1 past the end
};

}  // namespace arborist::kernels::cuda
