#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/tensor_instructions.cuh"
#include "kernels/tree_attention_mla/tensor_layout.cuh"

// The bf16 kernel for small calls, whose blocks all run at once: then the chain of one block is the time. A
// block is eight heads of one row and one part, which it finds from its own index, so no work list comes
// before it. The arithmetic is that of tensor_attention.cuh, sixteen keys after sixteen in the same order, so
// the bits are the same; but a step takes several tiles of sixteen keys for its two barriers, and every warp
// makes the weights of all eight queries itself, in the very registers from which the second product takes
// them.
namespace arborist::kernels::cuda {

constexpr int kRowQueries = 8;

template <int latent, int rope>
struct RowLayout {
  using K = Keys<latent, rope>;
  static constexpr int kTiles = latent > 256 ? 2 : 4;  // of 16 keys, a step
  static constexpr int kBuffers = latent > 256 ? 2 : 3;
  static constexpr int kStepKeys = kTiles * kTileKeys;
  static constexpr int kBufferBytes = kTiles * K::kStageBytes;
  // Scores lie as [quarter][tile][half of the keys][8 queries][8 keys], where the last four queries stand 8
  // floats further: neither fragments that are stored nor pairs of keys that are read meet in a bank.
  static constexpr int kHalf = kRowQueries * 8 + 8;
  static constexpr int kKeys = 0;
  static constexpr int kScores = kBuffers * kBufferBytes;
  static constexpr int kBytes = kScores + kQuarters * kTiles * 2 * kHalf * 4;
  static_assert(kBytes <= 99 * 1024, "what sm_120 has for a block");
  static constexpr int Score(int quarter, int tile, int half, int query) {
    return ((quarter * kTiles + tile) * 2 + half) * kHalf + query * 8 + query / 4 * 8;
  }
};

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

  __device__ void Run() {
    if (!FindKeys()) {
      return;
    }
    const int steps = (count_ + L::kStepKeys - 1) / L::kStepKeys;
    FindSlots(0);
    for (int step = 0; step < L::kBuffers; ++step) {
      LoadKeys(step, steps);
    }
    AskForKeys(L::kBuffers * L::kStepKeys);
    LoadQueries();
    WaitCopies<L::kBuffers - 1>();
    for (int step = 0; step < steps; ++step) {
      __syncthreads();  // the step's keys are there, and nobody reads those of the step before or its scores
      if (step > 0) {
        LoadKeys(step + L::kBuffers - 1, steps);
      }
      StoreScores(step);
      __syncthreads();
      WeighAndAdd(step);
      WaitCopies<L::kBuffers - 2>();
    }
    WaitCopies<0>();
    Finish();
  }

 private:
  // Which keys this part has; false where it has none.
  __device__ bool FindKeys() {
    const int32_t tail = p_.TailCount(row_);
    const int32_t blocks = p_.Blocks(row_);
    sequence_ = p_.Sequence(row_);
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

  // Of this thread's keys of a step; sixteen threads a key.
  __device__ void FindSlots(int step) {
#pragma unroll
    for (int tile = 0; tile < L::kTiles; ++tile) {
      slot_[tile] = SlotOf((step * L::kTiles + tile) * kTileKeys + thread_ / 16);
    }
  }

  // Beyond the last key stand zeros: their weight is zero, and so must be 0 * value.
  __device__ void LoadKeys(int step, int steps) {
    if (step < steps) {
#pragma unroll
      for (int tile = 0; tile < L::kTiles; ++tile) {
        const bool valid = slot_[tile] >= 0;
        const auto* from = static_cast<const uint16_t*>(p_.cache) +
                           int64_t{valid ? slot_[tile] : 0} * K::kWidth + thread_ % 16 * 8;
        const uint32_t to = SharedAddress(memory_) + step % L::kBuffers * L::kBufferBytes +
                            tile * K::kStageBytes + thread_ / 16 * K::kStride * 2 + thread_ % 16 * 16;
#pragma unroll
        for (int chunk = 0; chunk < K::kWidth / 8; chunk += 16) {
          if (chunk + 16 <= K::kWidth / 8 || chunk + thread_ % 16 < K::kWidth / 8) {
            CopyAsync(to + chunk * 16, from + chunk * 8, valid);
          }
        }
      }
    }
    CommitCopies();
    FindSlots(step + 1);  // long before they are needed
  }

  // The rest of the keys set out for the second cache now: few blocks run, and each would wait for memory
  // step by step.
  __device__ void AskForKeys(int32_t from_key) const {
    constexpr int kLine = 128;
    constexpr int kLines = (K::kWidth * 2 + kLine - 1) / kLine;
    for (int32_t i = from_key * kLines + thread_; i < count_ * kLines; i += kTensorThreads) {
      PrefetchToL2(static_cast<const uint16_t*>(p_.cache) + int64_t{SlotOf(i / kLines)} * K::kWidth +
                   i % kLines * (kLine / 2));
    }
  }

  __device__ void LoadQueries() {
    const float* from = p_.query + (query_index_ + lane_ / 4) * K::kWidth + lane_ % 4 * 2;
#pragma unroll
    for (int part = 0; part < K::kQuarterSteps; ++part) {
      const int at = (warp_ % kQuarters * K::kQuarterSteps + part) * 16;
      if (HasPart(part)) {
        query_[part][0] = Rounded(*reinterpret_cast<const float2*>(from + at));
        query_[part][1] = Rounded(*reinterpret_cast<const float2*>(from + at + 8));
      }
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
    const uint32_t from =
        SharedAddress(memory_) + step % L::kBuffers * L::kBufferBytes +
        ((lane_ % 8 + lane_ / 16 * 8) * K::kStride + lane_ / 8 % 2 * 8 + warp_ * K::kColumnTiles * 16) * 2;
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
        uint32_t values[4];
        LoadMatricesTransposed(values, from + tile * K::kStageBytes + m * 32);
        MultiplyAdd(out_[m], values, packed[0], packed[1]);
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

  __device__ void Finish() {
    if (warp_ == 0) {
      const float first = sum_[0] + __shfl_xor_sync(0xffffffffu, sum_[0], 2);
      const float second = sum_[1] + __shfl_xor_sync(0xffffffffu, sum_[1], 2);
      if (lane_ % 4 == 0) {
        reinterpret_cast<float2*>(p_.max_sum)[p_.Part(query_index_ + lane_ / 4, part_)] = {max_,
                                                                                           first + second};
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float* to = p_.acc + p_.Part(query_index_ + lane_ % 4 * 2 + i, part_) * p_.acc_stride +
                  warp_ * K::kColumnTiles * 16;
      const int row = lane_ / 4;
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
  int32_t first_ = 0;        // position of the first key of a split
  int32_t count_ = 0;        // of keys
  int32_t slot_[L::kTiles];  // of this thread's keys in the next step to load, -1 past the end
  uint32_t query_[K::kQuarterSteps][2];
  float out_[K::kColumnTiles][4] = {};
  float max_ = -INFINITY;
  float sum_[2] = {0, 0};
};

// grid (rows * heads / 8, parts)
template <int latent, int rope>
__global__ void __launch_bounds__(kTensorThreads, 2) RowAttention(const AttentionProblem p) {
  LetNextKernelStart();
  WaitForKernelBefore();
  extern __shared__ __align__(128) unsigned char memory[];
  const int32_t pieces = p.heads / kRowQueries;
  const auto index = static_cast<int32_t>(blockIdx.x);
  RowPart<latent, rope>(p, index / pieces, index % pieces * kRowQueries, static_cast<int32_t>(blockIdx.y),
                        memory)
      .Run();
}

}  // namespace arborist::kernels::cuda
