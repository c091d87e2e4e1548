#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/kernel_overlap/kernel_overlap.cuh"

// The tile loop of bf16 products on tensor cores: a block multiplies kRows weight rows with kTokens tokens.
//
// Weight rows are the 16-row side of mma.m16n8k16 and tokens its 8-column side, so that one to eight tokens
// cost one column tile. Inputs come in steps of 32, two mma each, in ascending order. Weights are copied to
// shared memory far ahead (cp.async); tokens pass through registers, where they are rounded, one stage ahead.
// The bits of a result depend on its two vectors and on the first and last step alone, never on the tile's
// shape, its place in it or its neighbours.
namespace arborist::kernels::cuda {

inline constexpr int kMmaStep = 32;

// A block's shape: warps stand kRowWarps x kTokenWarps, each with kRowTiles x kTokenTiles tiles of 16 x 8;
// kSteps share a barrier (0: what has proved good).
template <int kRowTileCount, int kRowWarpCount, int kTokenTileCount, int kTokenWarpCount, int kSteps = 0>
struct MmaTile {
  static constexpr int kRowTiles = kRowTileCount;
  static constexpr int kRowWarps = kRowWarpCount;
  static constexpr int kTokenTiles = kTokenTileCount;
  static constexpr int kRows = 16 * kRowTileCount * kRowWarpCount;
  static constexpr int kTokens = 8 * kTokenTileCount * kTokenWarpCount;
  static constexpr int kThreads = 32 * kRowWarpCount * kTokenWarpCount;
  // One step in shared memory: rows of 64 bytes, weights, then tokens. The four pieces of 16 bytes of row r
  // change places by (r / 2) % 4, so that eight rows' pieces of one place lie in different banks.
  static constexpr int kStepBytes = (kRows + kTokens) * 64;
  // Small steps share a barrier.
  static constexpr int kStepsPerStage = kSteps > 0 ? kSteps : kStepBytes <= 5632 ? 4 : 2;
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
// Predicated for the same reason. Not as read-only data (.nc): the kernel may have begun before they were
// written.
__device__ inline void Load16(float4& v, const float* from, bool wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
      "@p ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w)
      : "l"(from), "r"(static_cast<int>(wanted)));
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

// Four matrices of 8 x 8, whose rows the lanes point to: lanes 0..7 to those of the first, and so on.
__device__ inline uint4 LoadMatrices(const char* row) {
  uint4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(SharedAddress(row)));
  return v;
}

// Not volatile: the compiler overlaps the loads of one tile with the products of another.
__device__ inline void Mma(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ inline int PiecePlace(int row, int piece) { return row * 64 + (piece ^ (row / 2 % 4)) * 16; }

// Brings stages to shared memory. A thread always moves the same pieces: every kThreads-th piece of 16 bytes
// of the weights and every kThreads-th four inputs of the tokens. Inputs from `end` on become zeros on both
// sides.
//
// Regular copies are for whole steps at aligned addresses and have no branches: one over a load would wait
// for it. The others go element by element.
template <typename Tile, bool kRegular>
class StageCopier {
 private:
  static constexpr int kRowsApart = Tile::kThreads / 4;  // multiples of 8: a piece's place holds for all
  static constexpr int kRowCopies = Tile::kRows / kRowsApart;
  static constexpr int kTokensApart = Tile::kThreads / 8;
  static constexpr int kTokenCopies = (Tile::kTokens + kTokensApart - 1) / kTokensApart;

 public:
  __device__ StageCopier(const MmaOperands& in, int end) : in_(in), end_(end) {
    const int thread = static_cast<int>(threadIdx.x);
    row_ = thread / 4;
    weight_ = in.weight + static_cast<int64_t>(row_) * in.inputs + thread % 4 * 8;
    weight_place_ = PiecePlace(row_, thread % 4);
    token_ = thread / 8;
    x_ = in.x + token_ * in.x_stride + thread % 8 * 4;
    x_place_ = Tile::kRows * 64 + PiecePlace(token_, thread % 8 / 2) + thread % 2 * 8;
  }

  // Starts the copies of a stage's weights; k is its first input.
  __device__ void StartWeights(int k, char* stage) const {
    if constexpr (kRegular) {
#pragma unroll
      for (int i = 0; i < kRowCopies; ++i) {
        const uint16_t* from = weight_ + k + static_cast<int64_t>(i * kRowsApart) * in_.inputs;
        const uint32_t to = SharedAddress(stage) + weight_place_ + i * kRowsApart * 64;
#pragma unroll
        for (int s = 0; s < Tile::kStepsPerStage; ++s) {
          CopyAsync16(to + s * Tile::kStepBytes, from + s * kMmaStep,
                      row_ + i * kRowsApart < in_.rows && k + s * kMmaStep < end_);
        }
      }
    } else {
      CopyWeightElements(k, stage);
    }
  }

  // Tokens of a stage on their way: the thread's four inputs of each of its tokens and steps.
  struct Tokens {
    float4 v[kTokenCopies][Tile::kStepsPerStage] = {};
  };

  // Fetches the tokens of a stage, later to be stored there.
  __device__ void FetchTokens(int k, Tokens& fetched) const {
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      const float* from = x_ + k + i * kTokensApart * in_.x_stride;
      const bool inside = token_ + i * kTokensApart < in_.tokens;
#pragma unroll
      for (int s = 0; s < Tile::kStepsPerStage; ++s) {
        if constexpr (kRegular) {
          Load16(fetched.v[i][s], from + s * kMmaStep, inside && k + s * kMmaStep < end_);
        } else if (inside) {
          fetched.v[i][s] = FetchElements(from + s * kMmaStep, k + s * kMmaStep);
        }
      }
    }
  }
  __device__ void StoreTokens(const Tokens& fetched, char* stage) const {
#pragma unroll
    for (int i = 0; i < kTokenCopies; ++i) {
      if (token_ + i * kTokensApart < in_.tokens) {
#pragma unroll
        for (int s = 0; s < Tile::kStepsPerStage; ++s) {
          const float4& v = fetched.v[i][s];
          *reinterpret_cast<uint2*>(stage + s * Tile::kStepBytes + x_place_ + i * kTokensApart * 64) =
              make_uint2(RoundPair(v.x, v.y), RoundPair(v.z, v.w));
        }
      }
    }
  }

 private:
  __device__ void CopyWeightElements(int k, char* stage) const {
#pragma unroll 1
    for (int i = 0; i < kRowCopies * Tile::kStepsPerStage; ++i) {
      const int copy = i / Tile::kStepsPerStage * kRowsApart;
      const int step = i % Tile::kStepsPerStage;
      const uint16_t* from = weight_ + k + step * kMmaStep + static_cast<int64_t>(copy) * in_.inputs;
      auto* to = reinterpret_cast<uint16_t*>(stage + step * Tile::kStepBytes + weight_place_ + copy * 64);
      const int left =
          row_ + copy < in_.rows ? end_ - k - step * kMmaStep - static_cast<int>(threadIdx.x) % 4 * 8 : 0;
      for (int j = 0; j < 8; ++j) {
        to[j] = j < left ? from[j] : uint16_t{0};
      }
    }
  }
  __device__ float4 FetchElements(const float* from, int k) const {
    const int left = end_ - k - static_cast<int>(threadIdx.x) % 8 * 4;
    return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                       left > 3 ? from[3] : 0.0f);
  }

  const MmaOperands& in_;
  const int end_;
  const uint16_t* weight_;
  const float* x_;
  int row_, weight_place_, token_, x_place_;
};

template <typename Tile>
__device__ inline void MultiplyStep(const char* step, Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Matrices of the weights: rows 0..7 and 8..15 of inputs 0..7, then of 8..15.
  const int row = Tile::FirstRow() + lane % 16;
  uint4 a[Tile::kRowTiles][2];
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
    a[i][0] = LoadMatrices(step + PiecePlace(row, lane / 16) + i * 1024);
    a[i][1] = LoadMatrices(step + PiecePlace(row, 2 + lane / 16) + i * 1024);
  }
  // Of the tokens: eight tokens, four times eight inputs.
  const char* tokens = step + Tile::kRows * 64 + PiecePlace(Tile::FirstToken() + lane % 8, lane / 8);
#pragma unroll
  for (int j = 0; j < Tile::kTokenTiles; ++j) {
    const uint4 b = LoadMatrices(tokens + j * 512);
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      Mma(tile.acc[i][j], a[i][0], b.x, b.y);
      Mma(tile.acc[i][j], a[i][1], b.z, b.w);
    }
  }
}

template <typename Tile, bool kRegular>
__device__ inline void MultiplyInputs(const MmaOperands& in, int first, int end, char* shared, Tile& tile) {
  constexpr int kAhead = Tile::kStages - 1;
  constexpr int kInputs = Tile::kStepsPerStage * kMmaStep;
  StageCopier<Tile, kRegular> copier(in, end);
#pragma unroll 1
  for (int s = 0; s < kAhead; ++s) {
    if (first + s * kInputs < end) {
      copier.StartWeights(first + s * kInputs, shared + s * Tile::kStageBytes);
    }
    CommitCopies();
  }
  WaitForKernelBefore();  // who may have written the tokens; weights nobody writes
  typename StageCopier<Tile, kRegular>::Tokens tokens;
  {
    typename StageCopier<Tile, kRegular>::Tokens of_first;  // both at once: short products are all latency
    copier.FetchTokens(first, of_first);
    copier.FetchTokens(first + kInputs, tokens);
    copier.StoreTokens(of_first, shared);
  }
  const auto after = [shared](char* stage) {
    char* const next = stage + Tile::kStageBytes;
    return next == shared + Tile::kSharedBytes ? shared : next;
  };
  char* stage = shared;                               // at hand
  char* ahead = shared + kAhead * Tile::kStageBytes;  // to be filled: the one used before this
#pragma unroll 1
  for (int k = first; k < end; k += kInputs) {
    WaitForCopies<kAhead - 1>();
    __syncthreads();
    if (k + kAhead * kInputs < end) {
      copier.StartWeights(k + kAhead * kInputs, ahead);
    }
    CommitCopies();
    char* const next = after(stage);
    copier.StoreTokens(tokens, next);
    copier.FetchTokens(k + 2 * kInputs, tokens);
#pragma unroll
    for (int s = 0; s < Tile::kStepsPerStage; ++s) {
      if (s == 0 || k + s * kMmaStep < end) {
        MultiplyStep(stage + s * Tile::kStepBytes, tile);
      }
    }
    stage = next;
    ahead = after(ahead);
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
  const int end = min(last * kMmaStep, in.inputs);
  if (first < last && in.weight_aligned && in.x_aligned && end % kMmaStep == 0) {
    MultiplyInputs<Tile, true>(in, first * kMmaStep, end, shared, tile);
  } else if (first < last) {
    MultiplyInputs<Tile, false>(in, first * kMmaStep, end, shared, tile);
  } else {
    WaitForKernelBefore();
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
