#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/row_layout.cuh"
#include "kernels/tree_attention_mla/tensor_instructions.cuh"

// The bf16 kernel for small calls, whose blocks all run at once: then the chain of one block is the time. A
// block is eight heads of one row and one part, which it finds from its own index, so no work list comes
// before it. The arithmetic is that of tensor_attention.cuh, sixteen keys after sixteen in the same order, so
// the bits are the same; but a step takes several tiles of sixteen keys for its two barriers, every warp
// makes the weights of all eight queries itself, in the very registers from which the second product takes
// them, and two more warps do nothing but bring keys: what a copy waits for nobody else does.
namespace arborist::kernels::cuda {

template <int latent, int rope>
class RowPart {
  using L = RowLayout<latent, rope>;
  using K = Keys<latent, rope>;
  static constexpr int kOwnTiles = L::kTiles / kHalves;  // of keys, in the first product

 public:
  // `part` counts the row's splits, then its tail.
  __device__ RowPart(const AttentionProblem& p, int32_t row, int32_t head, int32_t part,
                     unsigned char* memory)
      : p_(p),
        memory_(memory),
        row_(row),
        query_index_(int64_t{row} * p.heads + head),
        part_(part),
        thread_(static_cast<int>(threadIdx.x)),
        lane_(thread_ % 32),
        warp_(thread_ / 32) {}

  // Leaves this part in scratch, for the join.
  __device__ void Run() {
    if (Reduce() && thread_ < kTensorThreads) {
      StoreSums(reinterpret_cast<float2*>(p_.max_sum) + p_.Part(query_index_, part_), p_.parts);
      StorePart(p_.acc + p_.Part(query_index_, part_) * p_.acc_stride, int64_t{p_.parts} * p_.acc_stride);
    }
  }

 private:
  // False where the part has no keys.
  __device__ bool Reduce() {
    const int32_t tail = p_.TailCount(row_);
    const int32_t blocks = p_.Blocks(row_);
    sequence_ = p_.Sequence(row_);
    float2 queries[K::kQuarterSteps][2] = {};  // on their way while slots are looked up
    if (thread_ < kTensorThreads) {
      LoadQueries(queries);
    }
    if (!FindKeys(tail, blocks)) {
      return false;
    }
    const int steps = (count_ + L::kStepKeys - 1) / L::kStepKeys;
    for (int32_t i = thread_; i < steps * L::kStepKeys; i += kRowThreads) {
      Slots()[i] = SlotOf(i);
    }
    __syncthreads();
    if (thread_ >= kTensorThreads) {
      BringKeys(steps);
      return true;
    }
    RoundQueries(queries);
    for (int step = 0; step < steps; ++step) {
      __syncthreads();  // the step's keys are there
      StoreScores(step);
      __syncthreads();
      WeighAndAdd(step);
    }
    return true;
  }

  __device__ int32_t* Slots() const { return reinterpret_cast<int32_t*>(memory_ + L::kSlots); }

  // Which keys this part has; false where it has none.
  __device__ bool FindKeys(int32_t tail, int32_t blocks) {
    const int32_t splits = Splits(blocks);
    if (tail == 0 || part_ > splits) {
      return false;
    }
    is_tail_ = part_ == splits;
    const int32_t length = CudaSplitBlocks(blocks);
    first_ = part_ * length * kPageRows;
    count_ = is_tail_ ? tail : min(blocks * kPageRows - first_, length * kPageRows);
    return true;
  }

  __device__ int32_t SlotOf(int32_t key) const {
    if (key >= count_) {
      return -1;
    }
    return static_cast<int32_t>(is_tail_ ? p_.TailSlot(row_, key) : p_.PrefixSlot(sequence_, first_ + key));
  }

  // What the loaders do, at the barriers of the others (all of the block's, for racecheck does not follow
  // barriers of some of its warps): half of a step's keys before the second, half after it. A buffer is free
  // when everybody is at the first barrier of the step after.
  __device__ void BringKeys(int steps) const {
    for (int step = 0; step < L::kBuffers; ++step) {
      LoadKeys(step, steps, 0);
      LoadKeys(step, steps, 1);
      CommitCopies();
    }
    AskForKeys(L::kBuffers * L::kStepKeys);
    WaitCopies<L::kBuffers - 1>();
    for (int step = 0; step < steps; ++step) {
      const int next = step == 0 ? steps : step + L::kBuffers - 1;
      __syncthreads();
      LoadKeys(next, steps, 0);
      __syncthreads();
      LoadKeys(next, steps, 1);
      CommitCopies();
      WaitCopies<L::kBuffers - 2>();
    }
    WaitCopies<0>();
  }

  // One half of a step's keys, sixteen threads a key. Beyond the last key stand zeros: their weight is zero,
  // and so must be 0 * value.
  __device__ void LoadKeys(int step, int steps, int half) const {
    if (step >= steps) {
      return;
    }
    constexpr int kAtOnce = kRowLoaders / 16;
    constexpr int kHalfKeys = L::kStepKeys / 2;
    const int loader = thread_ - kTensorThreads;
    const int first = half * kHalfKeys + loader / 16;
    const int32_t* slots = Slots() + step * L::kStepKeys + first;
    const uint32_t to = SharedAddress(memory_) + step % L::kBuffers * L::kBufferBytes +
                        first * K::kStride * 2 + loader % 16 * 16;
#pragma unroll
    for (int key = 0; key < kHalfKeys; key += kAtOnce) {
      const int32_t slot = slots[key];
      const auto* from =
          static_cast<const uint16_t*>(p_.cache) + int64_t{slot < 0 ? 0 : slot} * K::kWidth + loader % 16 * 8;
#pragma unroll
      for (int chunk = 0; chunk < K::kWidth / 8; chunk += 16) {
        if (chunk + 16 <= K::kWidth / 8 || chunk + loader % 16 < K::kWidth / 8) {
          CopyAsync(to + key * K::kStride * 2 + chunk * 16, from + chunk * 8, slot >= 0);
        }
      }
    }
  }

  // The rest of the keys set out for the second cache now: few blocks run, and each would wait for memory
  // step by step.
  __device__ void AskForKeys(int32_t from_key) const {
    constexpr int kLine = 128;
    constexpr int kLines = (K::kWidth * 2 + kLine - 1) / kLine;
    for (int32_t i = from_key * kLines + thread_ - kTensorThreads; i < count_ * kLines; i += kRowLoaders) {
      PrefetchToL2(static_cast<const uint16_t*>(p_.cache) + int64_t{Slots()[i / kLines]} * K::kWidth +
                   i % kLines * (kLine / 2));
    }
  }

  __device__ void LoadQueries(float2 (&queries)[K::kQuarterSteps][2]) const {
    const float* from = p_.query + (query_index_ + lane_ / 4) * K::kWidth + lane_ % 4 * 2;
#pragma unroll
    for (int part = 0; part < K::kQuarterSteps; ++part) {
      const int at = (warp_ % kQuarters * K::kQuarterSteps + part) * 16;
      if (HasPart(part)) {
        queries[part][0] = LoadPair(from + at);
        queries[part][1] = LoadPair(from + at + 8);
      }
    }
  }
  // Here and now: the compiler would rather load where the values are used.
  __device__ static float2 LoadPair(const float* from) {
    float2 value;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];\n" : "=f"(value.x), "=f"(value.y) : "l"(from));
    return value;
  }
  __device__ void RoundQueries(const float2 (&queries)[K::kQuarterSteps][2]) {
#pragma unroll
    for (int part = 0; part < K::kQuarterSteps; ++part) {
      query_[part][0] = Rounded(queries[part][0]);
      query_[part][1] = Rounded(queries[part][1]);
    }
  }
  __device__ static uint32_t Rounded(float2 value) {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(value.x, value.y);
    return *reinterpret_cast<const uint32_t*>(&rounded);
  }

  // Where the width is no multiple of 64 columns the last quarter has fewer parts.
  __device__ bool HasPart(int part) const {
    return K::kSteps % kQuarters == 0 || warp_ % kQuarters * K::kQuarterSteps + part < K::kSteps;
  }

  // This warp's quarter of the width, for its tiles of keys: warp / 4, and every second from there.
  __device__ void StoreScores(int step) {
    float score[kOwnTiles][4] = {};
    const int tile = warp_ / kQuarters;
    const int quarter = warp_ % kQuarters;
    const uint32_t from = SharedAddress(memory_) + step % L::kBuffers * L::kBufferBytes +
                          tile * K::kStageBytes +
                          (lane_ % 16 * K::kStride + lane_ / 16 * 8 + quarter * K::kQuarterSteps * 16) * 2;
    uint32_t keys[2][kOwnTiles][4];
    const auto load = [&](int part) {
#pragma unroll
      for (int i = 0; i < kOwnTiles; ++i) {
        LoadMatrices(keys[part % 2][i], from + i * kHalves * K::kStageBytes + part * 32);
      }
    };
    load(0);
#pragma unroll
    for (int part = 0; part < K::kQuarterSteps; ++part) {
      if (part + 1 < K::kQuarterSteps && HasPart(part + 1)) {
        load(part + 1);
      }
      if (HasPart(part)) {
#pragma unroll
        for (int i = 0; i < kOwnTiles; ++i) {
          MultiplyAdd(score[i], keys[part % 2][i], query_[part][0], query_[part][1]);
        }
      }
    }
    auto* scores = reinterpret_cast<float*>(memory_ + L::kScores);
    const int query = lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < kOwnTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[L::Score(quarter, tile + i * kHalves, j / 2, query + j % 2) + lane_ / 4] = score[i][j];
      }
    }
  }

  // Softmax of the step's scores and O^T += V^T P^T for this warp's columns. A lane has query lane / 4 and of
  // each sixteen keys 2 * (lane % 4), + 1, + 8 and + 9.
  __device__ void WeighAndAdd(int step) {
    const uint32_t from =
        SharedAddress(memory_) + step % L::kBuffers * L::kBufferBytes +
        ((lane_ % 8 + lane_ / 16 * 8) * K::kStride + lane_ / 8 % 2 * 8 + warp_ * K::kColumnTiles * 16) * 2;
    uint32_t values[L::kTiles][K::kColumnTiles][4];
#pragma unroll
    for (int tile = 0; tile < L::kTiles; ++tile) {
#pragma unroll
      for (int m = 0; m < K::kColumnTiles; ++m) {
        LoadMatricesTransposed(values[tile][m], from + tile * K::kStageBytes + m * 32);
      }
    }
    const auto* scores = reinterpret_cast<const float*>(memory_ + L::kScores);
    float score[L::kTiles][4];
    float most[L::kTiles];
#pragma unroll
    for (int tile = 0; tile < L::kTiles; ++tile) {
      float2 quarters[kQuarters][2];
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          quarters[quarter][half] = *reinterpret_cast<const float2*>(
              scores + L::Score(quarter, tile, half, lane_ / 4) + lane_ % 4 * 2);
        }
      }
      const int left = count_ - (step * L::kTiles + tile) * kTileKeys - lane_ % 4 * 2;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float2 sum = quarters[0][half];
#pragma unroll
        for (int quarter = 1; quarter < kQuarters; ++quarter) {
          sum.x += quarters[quarter][half].x;
          sum.y += quarters[quarter][half].y;
        }
        score[tile][half * 2] = half * 8 < left ? sum.x * p_.scale_log2 : -INFINITY;
        score[tile][half * 2 + 1] = half * 8 + 1 < left ? sum.y * p_.scale_log2 : -INFINITY;
      }
      most[tile] = fmaxf(fmaxf(score[tile][0], score[tile][1]), fmaxf(score[tile][2], score[tile][3]));
      most[tile] = fmaxf(most[tile], __shfl_xor_sync(0xffffffffu, most[tile], 1));
      most[tile] = fmaxf(most[tile], __shfl_xor_sync(0xffffffffu, most[tile], 2));
    }
#pragma unroll
    for (int tile = 0; tile < L::kTiles; ++tile) {
      const bool moved = most[tile] > max_ + kSlack;
      const float alpha = moved ? Exp2(max_ - most[tile]) : 1;  // 0 at first
      max_ = moved ? most[tile] : max_;
      const float reference = max_ == -INFINITY ? 0 : max_;  // no key yet
      const __nv_bfloat162 weight[2] = {
          __floats2bfloat162_rn(Exp2(score[tile][0] - reference), Exp2(score[tile][1] - reference)),
          __floats2bfloat162_rn(Exp2(score[tile][2] - reference), Exp2(score[tile][3] - reference))};
      AddToSums(alpha, weight);
      if (__any_sync(0xffffffffu, moved)) {
        Rescale(alpha);
      }
      const auto* packed = reinterpret_cast<const uint32_t*>(weight);
#pragma unroll
      for (int m = 0; m < K::kColumnTiles; ++m) {
        MultiplyAdd(out_[m], values[tile][m], packed[0], packed[1]);
      }
    }
  }

  // Of four consecutive keys ((w0 + w1) + (w2 + w3)), as tensor_attention.cuh adds them: lanes 0, 1 of four
  // have the sums of the first and the third four keys, lanes 2, 3 those of the second and the last.
  __device__ void AddToSums(float alpha, const __nv_bfloat162 (&weight)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float pair = __low2float(weight[half]) + __high2float(weight[half]);
      sum_[half] = sum_[half] * alpha + (pair + __shfl_xor_sync(0xffffffffu, pair, 1));
    }
  }

  // A lane of a fragment of O has queries 2 * (lane % 4) and the next.
  __device__ void Rescale(float alpha) {
    const float of_first = __shfl_sync(0xffffffffu, alpha, lane_ % 4 * 8);
    const float of_second = __shfl_sync(0xffffffffu, alpha, lane_ % 4 * 8 + 4);
#pragma unroll
    for (int m = 0; m < K::kColumnTiles; ++m) {
      out_[m][0] *= of_first;
      out_[m][1] *= of_second;
      out_[m][2] *= of_first;
      out_[m][3] *= of_second;
    }
  }

  // `stride`: from a query to the next.
  __device__ void StoreSums(float2* to, int64_t stride) const {
    if (warp_ == 0) {
      const float first = sum_[0] + __shfl_xor_sync(0xffffffffu, sum_[0], 2);
      const float second = sum_[1] + __shfl_xor_sync(0xffffffffu, sum_[1], 2);
      if (lane_ % 4 == 0) {
        to[lane_ / 4 * stride] = {max_, first + second};
      }
    }
  }

  __device__ void StorePart(float* part, int64_t stride) const {
    const int row = lane_ / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* to = part + (lane_ % 4 * 2 + i) * stride + warp_ * K::kColumnTiles * 16;
      if constexpr (K::kPacked) {
#pragma unroll
        for (int m = 0; m < K::kColumnTiles; m += 2) {
          *reinterpret_cast<float4*>(to + m * 16 + row * 4) = {out_[m][i], out_[m][i + 2], out_[m + 1][i],
                                                               out_[m + 1][i + 2]};
        }
      } else {
#pragma unroll
        for (int m = 0; m < K::kColumnTiles; ++m) {
          to[m * 16 + row] = out_[m][i];
          to[m * 16 + 8 + row] = out_[m][i + 2];
        }
      }
    }
  }

  const AttentionProblem& p_;
  unsigned char* const memory_;
  const int32_t row_;
  const int64_t query_index_;  // the first
  const int32_t part_;
  const int thread_;
  const int lane_;
  const int warp_;
  bool is_tail_ = false;
  int32_t sequence_ = 0;
  int32_t first_ = 0;  // position of the first key of a split
  int32_t count_ = 0;  // of keys
  uint32_t query_[K::kQuarterSteps][2];
  float out_[K::kColumnTiles][4] = {};
  float max_ = -INFINITY;
  float sum_[2] = {0, 0};
};

}  // namespace arborist::kernels::cuda
