#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

// The tile loop of bf16 products on tensor cores: a block multiplies kRows weight rows with kTokens tokens.
//
// Weight rows are the 16-row side of mma.m16n8k16 and tokens its 8-column side, so that one to eight tokens
// cost one column tile. Inputs come in steps of 32, two mma each; the order of inputs inside a step is
// permuted (lane q of a quad owns inputs 8q..8q+7, four for each mma), the same for both operands, so that
// every operand is read from shared memory in 16-byte pieces. The bits of a result depend on its two vectors
// and on the first and last step alone, never on the tile's shape, its place in it or its neighbours.
namespace arborist::kernels::cuda {

inline constexpr int kMmaStep = 32;

// A block's shape: warps stand kRowWarps x kTokenWarps, each with kRowTiles x kTokenTiles tiles of 16 x 8.
template <int kRowTileCount, int kRowWarpCount, int kTokenTileCount, int kTokenWarpCount>
struct MmaTile {
  static constexpr int kRowTiles = kRowTileCount;
  static constexpr int kRowWarps = kRowWarpCount;
  static constexpr int kTokenTiles = kTokenTileCount;
  static constexpr int kRows = 16 * kRowTileCount * kRowWarpCount;
  static constexpr int kTokens = 8 * kTokenTileCount * kTokenWarpCount;
  static constexpr int kThreads = 32 * kRowWarpCount * kTokenWarpCount;
  // One step in shared memory: weights as stored, then tokens in fp32 (rounded when they are used: a copy
  // that goes through registers could not run ahead).
  static constexpr int kWeightBytes = kRows * kMmaStep * 2;
  static constexpr int kStepBytes = kWeightBytes + kTokens * kMmaStep * 4;
  // Small steps share a barrier.
  static constexpr int kStepsPerStage = kStepBytes <= 7 * 1024 ? 4 : kStepBytes <= 14 * 1024 ? 2 : 1;
  static constexpr int kStageBytes = kStepsPerStage * kStepBytes;
  // What is under way hides the latency of memory, and other blocks on the same SM that of a step.
  static constexpr int kStages = std::max(3, 75 * 1024 / kStageBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes;
  // A block's results in shared memory, [tokens, rows + 4]: the padding spreads a warp over the banks.
  static constexpr int kResultPitch = kRows + 4;
  static_assert(kTokens * kResultPitch * 4 <= kSharedBytes && kSharedBytes <= 99 * 1024);

  // Of this thread's warp.
  __device__ static int FirstRow() { return static_cast<int>(threadIdx.x) / 32 % kRowWarps * 16 * kRowTiles; }
  __device__ static int FirstToken() {
    return static_cast<int>(threadIdx.x) / 32 / kRowWarps * 8 * kTokenTiles;
  }

  float acc[kRowTileCount][kTokenTileCount][4];
};

// The operands of a block. Rows past the end are neither read nor written;
// tokens <= Tile::kTokens.
struct MmaOperands {
  const float* x = nullptr;  // first token
  int64_t x_stride = 0;
  int tokens = 0;
  bool x_aligned = false;            // every row begins at a multiple of 16 bytes
  const uint16_t* weight = nullptr;  // first row, bf16
  int rows = 0;
  bool weight_aligned = false;  // likewise
  int inputs = 0;
};

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Past the L1: weights pass once. Without a source size, which would make the copy wait for its data; and
// predicated instead of branched over, so that the copies of a stage stand in one row.
__device__ inline void CopyAsync16(uint32_t to, const void* from, bool wanted = true) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n"
      "@p cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<int>(wanted)));
}
__device__ inline void CopyAsync4(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from));
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most kPending of this thread's latest groups are under way.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Two floats rounded to nearest even, the first in the lower half.
__device__ inline uint32_t RoundPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Not volatile, as nothing here is: the compiler overlaps the loads of one tile with the products of another.
__device__ inline void Mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Copies steps into shared memory. A thread always moves the same pieces of 16 bytes: every kThreads-th.
template <typename Tile>
class StepCopier {
 public:
  __device__ explicit StepCopier(const MmaOperands& in) : in_(in) {
    const int thread = static_cast<int>(threadIdx.x);
    weight_row_ = thread / 4;
    weight_at_ = thread % 4 * 8;
    weight_ = in.weight + static_cast<int64_t>(weight_row_) * in.inputs + weight_at_;
    token_ = thread / 8;
    token_at_ = thread % 8 * 4;
    x_ = in.x + token_ * in.x_stride + token_at_;
    // Neighbouring tokens change places in pairs of pieces, so that a quarter warp reads all banks once.
    x_place_ = Tile::kWeightBytes + token_ * 128 + ((thread % 8) ^ (token_ & 1)) * 16;
  }

  // Starts the copies of a whole stage of whole, aligned steps, whose first input is k.
  __device__ void StartStage(int k, char* stage) const {
    const uint32_t to = SharedAddress(stage);
    constexpr int kRowsApart = Tile::kThreads / 4;
    constexpr int kTokensApart = Tile::kThreads / 8;
#pragma unroll
    for (int i = 0; i < Tile::kRows / kRowsApart; ++i) {
      const uint16_t* from = weight_ + k + static_cast<int64_t>(i * kRowsApart) * in_.inputs;
#pragma unroll
      for (int s = 0; s < Tile::kStepsPerStage; ++s) {
        CopyAsync16(to + s * Tile::kStepBytes + (threadIdx.x + i * Tile::kThreads) * 16, from + s * kMmaStep,
                    weight_row_ + i * kRowsApart < in_.rows);
      }
    }
#pragma unroll
    for (int i = 0; i < (Tile::kTokens + kTokensApart - 1) / kTokensApart; ++i) {
      const float* from = x_ + k + i * kTokensApart * in_.x_stride;
#pragma unroll
      for (int s = 0; s < Tile::kStepsPerStage; ++s) {
        CopyAsync16(to + s * Tile::kStepBytes + x_place_ + i * kTokensApart * 128, from + s * kMmaStep,
                    token_ + i * kTokensApart < in_.tokens);
      }
    }
  }

  // Starts the copies of the step whose first input is k. Weights at odd addresses and the step that the
  // inputs end in are copied element by element; inputs past the end become zeros on both sides.
  __device__ void Start(int k, char* step) const {
    const bool whole = k + kMmaStep <= in_.inputs;
    if (whole && in_.weight_aligned) {
      ForEachWeightPiece(step, k,
                         [](char* to, const uint16_t* from) { CopyAsync16(SharedAddress(to), from); });
    } else {
      const int left = in_.inputs - k - weight_at_;
      ForEachWeightPiece(step, k, [left](char* to, const uint16_t* from) {
        for (int j = 0; j < 8; ++j) {
          reinterpret_cast<uint16_t*>(to)[j] = j < left ? from[j] : uint16_t{0};
        }
      });
    }
    if (whole && in_.x_aligned) {
      ForEachTokenPiece(step, k, [](char* to, const float* from) { CopyAsync16(SharedAddress(to), from); });
    } else if (whole) {
      ForEachTokenPiece(step, k, [](char* to, const float* from) {
        for (int j = 0; j < 4; ++j) {
          CopyAsync4(SharedAddress(to + j * 4), from + j);
        }
      });
    } else {
      const int left = in_.inputs - k - token_at_;
      ForEachTokenPiece(step, k, [left](char* to, const float* from) {
        for (int j = 0; j < 4; ++j) {
          reinterpret_cast<float*>(to)[j] = j < left ? from[j] : 0.0f;
        }
      });
    }
  }

 private:
  template <typename Copy>
  __device__ void ForEachWeightPiece(char* step, int k, const Copy& copy) const {
    constexpr int kRowsApart = Tile::kThreads / 4;
#pragma unroll
    for (int i = 0; i < Tile::kRows / kRowsApart; ++i) {
      if (weight_row_ + i * kRowsApart < in_.rows) {
        copy(step + (threadIdx.x + i * Tile::kThreads) * 16,
             weight_ + k + static_cast<int64_t>(i * kRowsApart) * in_.inputs);
      }
    }
  }
  template <typename Copy>
  __device__ void ForEachTokenPiece(char* step, int k, const Copy& copy) const {
    constexpr int kTokensApart = Tile::kThreads / 8;  // even: x_place_ holds for all
#pragma unroll
    for (int i = 0; i < (Tile::kTokens + kTokensApart - 1) / kTokensApart; ++i) {
      if (token_ + i * kTokensApart < in_.tokens) {
        copy(step + x_place_ + i * kTokensApart * 128, x_ + k + i * kTokensApart * in_.x_stride);
      }
    }
  }

  const MmaOperands& in_;
  const uint16_t* weight_;
  const float* x_;
  int weight_row_, weight_at_, token_, token_at_, x_place_;
};

template <typename Tile>
__device__ inline void MultiplyStep(const char* step, Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4;
  const int quad = lane % 4;
  const char* weights = step + (Tile::FirstRow() + group) * 64 + quad * 16;
  const char* tokens = step + Tile::kWeightBytes + (Tile::FirstToken() + group) * 128;
  const int swap = group & 1;
  uint4 low[Tile::kRowTiles];   // rows 0..7 of a tile
  uint4 high[Tile::kRowTiles];  // rows 8..15
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
    low[i] = *reinterpret_cast<const uint4*>(weights + i * 1024);
    high[i] = *reinterpret_cast<const uint4*>(weights + i * 1024 + 512);
  }
#pragma unroll
  for (int j = 0; j < Tile::kTokenTiles; ++j) {
    const float4 first = *reinterpret_cast<const float4*>(tokens + j * 1024 + (2 * quad + swap) * 16);
    const float4 second = *reinterpret_cast<const float4*>(tokens + j * 1024 + (2 * quad + 1 - swap) * 16);
    const uint32_t b[4] = {RoundPair(first.x, first.y), RoundPair(first.z, first.w),
                           RoundPair(second.x, second.y), RoundPair(second.z, second.w)};
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      Mma(tile.acc[i][j], low[i].x, high[i].x, low[i].y, high[i].y, b[0], b[1]);
      Mma(tile.acc[i][j], low[i].z, high[i].z, low[i].w, high[i].w, b[2], b[3]);
    }
  }
}

// tile.acc = the products over steps [first, last). All threads of the block; `shared` has
// Tile::kSharedBytes, 16-byte aligned, and is free again after the next barrier.
template <typename Tile>
__device__ inline void MultiplySteps(const MmaOperands& in, int first, int last, char* shared, Tile& tile) {
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        tile.acc[i][j][e] = 0.0f;
      }
    }
  }
  const StepCopier<Tile> copier(in);
  const bool regular = in.weight_aligned && in.x_aligned && last * kMmaStep <= in.inputs;
  const auto copy = [&](int step, char* stage) {
    if (regular && step + Tile::kStepsPerStage <= last) {
      copier.StartStage(step * kMmaStep, stage);
    } else {
#pragma unroll 1
      for (int s = 0; s < Tile::kStepsPerStage && step + s < last; ++s) {
        copier.Start((step + s) * kMmaStep, stage + s * Tile::kStepBytes);
      }
    }
    CommitCopies();
  };
  constexpr int kAhead = Tile::kStages - 1;
#pragma unroll 1
  for (int s = 0; s < kAhead; ++s) {
    copy(first + s * Tile::kStepsPerStage, shared + s * Tile::kStageBytes);
  }
  char* stage = shared;                               // of the steps at hand
  char* ahead = shared + kAhead * Tile::kStageBytes;  // of those to be fetched: the one used before this
  char* const end = shared + Tile::kSharedBytes;
#pragma unroll 1
  for (int step = first; step < last; step += Tile::kStepsPerStage) {
    WaitForCopies<kAhead - 1>();
    __syncthreads();
    copy(step + kAhead * Tile::kStepsPerStage, ahead);
    if (step + Tile::kStepsPerStage <= last) {
#pragma unroll
      for (int s = 0; s < Tile::kStepsPerStage; ++s) {
        MultiplyStep(stage + s * Tile::kStepBytes, tile);
      }
    } else {
#pragma unroll 1
      for (int s = 0; step + s < last; ++s) {
        MultiplyStep(stage + s * Tile::kStepBytes, tile);
      }
    }
    stage = stage + Tile::kStageBytes == end ? shared : stage + Tile::kStageBytes;
    ahead = ahead + Tile::kStageBytes == end ? shared : ahead + Tile::kStageBytes;
  }
}

// Calls store(row, token, value) for each of this thread's results, also for those past the end.
template <typename Tile, typename Store>
__device__ inline void ForEachResult(const Tile& tile, const Store& store) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = Tile::FirstRow() + lane / 4;
  const int first_token = Tile::FirstToken() + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        store(first_row + i * 16 + e / 2 * 8, first_token + j * 8 + e % 2, tile.acc[i][j][e]);
      }
    }
  }
}

}  // namespace arborist::kernels::cuda
