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

template <int kRowTilesPerWarp, int kWarpCount, int kTokenTileCount>
struct MmaTile {
  static constexpr int kRowTiles = kRowTilesPerWarp;
  static constexpr int kTokenTiles = kTokenTileCount;
  static constexpr int kRows = 16 * kRowTilesPerWarp * kWarpCount;
  static constexpr int kTokens = 8 * kTokenTileCount;
  static constexpr int kThreads = 32 * kWarpCount;
  // One step in shared memory: weights as stored, then tokens in fp32 (rounded when they are used: a copy
  // that goes through registers could not run ahead).
  static constexpr int kWeightBytes = kRows * kMmaStep * 2;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kMmaStep * 4;
  // What is under way hides the latency of memory; two blocks share an SM where it has room for 200 KB.
  static constexpr int kStages = std::min(12, 90 * 1024 / kStageBytes);
  static constexpr int kSharedBytes = kStages * kStageBytes;
  // A block's results in shared memory, [tokens, rows + 4]: the padding spreads a warp over the banks.
  static constexpr int kResultPitch = kRows + 4;
  static_assert(kTokens * kResultPitch * 4 <= kSharedBytes && kSharedBytes <= 99 * 1024);

  float acc[kRowTilesPerWarp][kTokenTileCount][4];
};

// The operands of a block. Rows past the end are neither read nor written.
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

// 16 bytes, of which the first `bytes` are read and the others become zeros. Past the L1: weights pass once.
__device__ inline void CopyAsync16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void CopyAsync4(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::); }
// Waits until at most kPending of this thread's latest groups are under way.
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending));
}

__device__ inline uint4 LoadShared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

// Two floats rounded to nearest even, the first in the lower half.
__device__ inline uint32_t RoundPair(uint32_t low, uint32_t high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(__uint_as_float(low), __uint_as_float(high));
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline void Mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Starts the copies of one step, whose first input is k, into a stage of shared memory. Inputs past the end
// become zeros on both sides.
template <typename Tile>
__device__ inline void LoadStage(const MmaOperands& in, int k, char* stage) {
  const uint32_t base = SharedAddress(stage);
#pragma unroll
  for (int i = 0; i < Tile::kWeightBytes / 16 / Tile::kThreads; ++i) {
    const int piece = static_cast<int>(threadIdx.x) + i * Tile::kThreads;
    const int row = piece / 4;
    const int at = k + piece % 4 * 8;
    if (row >= in.rows) {
      continue;
    }
    const uint16_t* from = in.weight + static_cast<int64_t>(row) * in.inputs + at;
    if (in.weight_aligned) {
      CopyAsync16(base + piece * 16, from, at < in.inputs ? 16 : 0);
    } else {
      auto* to = reinterpret_cast<uint16_t*>(stage + piece * 16);
      for (int j = 0; j < 8; ++j) {
        to[j] = at + j < in.inputs ? from[j] : uint16_t{0};
      }
    }
  }
#pragma unroll
  for (int i = 0; i < (Tile::kTokens * 8 + Tile::kThreads - 1) / Tile::kThreads; ++i) {
    const int piece = static_cast<int>(threadIdx.x) + i * Tile::kThreads;
    const int token = piece / 8;
    const int at = k + piece % 8 * 4;
    if (token >= in.tokens || token >= Tile::kTokens) {
      continue;
    }
    const float* from = in.x + token * in.x_stride + at;
    // Neighbouring rows change places in pairs of pieces, so that a quarter warp reads all banks once.
    const uint32_t to = base + Tile::kWeightBytes + token * 128 + ((piece % 8) ^ (token & 1)) * 16;
    const int left = min(max(in.inputs - at, 0), 4);
    if (in.x_aligned) {
      CopyAsync16(to, from, left * 4);
    } else {
      for (int j = 0; j < 4; ++j) {
        CopyAsync4(to + j * 4, from + j, j < left ? 4 : 0);
      }
    }
  }
}

template <typename Tile>
__device__ inline void MultiplyStage(const char* stage, Tile& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / 4;
  const int quad = lane % 4;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * 16 * Tile::kRowTiles + group;
  const uint32_t weights = SharedAddress(stage) + first_row * 64 + quad * 16;
  const uint32_t tokens = SharedAddress(stage) + Tile::kWeightBytes + group * 128;
  const int swap = group & 1;
  uint4 low[Tile::kRowTiles];   // rows 0..7 of a tile
  uint4 high[Tile::kRowTiles];  // rows 8..15
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
    low[i] = LoadShared16(weights + i * 1024);
    high[i] = LoadShared16(weights + i * 1024 + 512);
  }
#pragma unroll
  for (int j = 0; j < Tile::kTokenTiles; ++j) {
    const uint4 first = LoadShared16(tokens + j * 1024 + (2 * quad + swap) * 16);
    const uint4 second = LoadShared16(tokens + j * 1024 + (2 * quad + 1 - swap) * 16);
    const uint32_t b[4] = {RoundPair(first.x, first.y), RoundPair(first.z, first.w),
                           RoundPair(second.x, second.y), RoundPair(second.z, second.w)};
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
      Mma(tile.acc[i][j], low[i].x, high[i].x, low[i].y, high[i].y, b[0], b[1]);
    }
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
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
#pragma unroll 1
  for (int s = 0; s < Tile::kStages - 1; ++s) {
    if (first + s < last) {
      LoadStage<Tile>(in, (first + s) * kMmaStep, shared + s * Tile::kStageBytes);
    }
    CommitCopies();
  }
  int slot = 0;                   // of the step at hand
  int ahead = Tile::kStages - 1;  // of the step to be fetched: the one used before this
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    WaitForCopies<Tile::kStages - 2>();
    __syncthreads();
    if (step + Tile::kStages - 1 < last) {
      LoadStage<Tile>(in, (step + Tile::kStages - 1) * kMmaStep, shared + ahead * Tile::kStageBytes);
    }
    CommitCopies();
    MultiplyStage(shared + slot * Tile::kStageBytes, tile);
    slot = slot + 1 == Tile::kStages ? 0 : slot + 1;
    ahead = ahead + 1 == Tile::kStages ? 0 : ahead + 1;
  }
}

// Calls store(row, token, value) for each of this thread's results, also for those past the end.
template <typename Tile, typename Store>
__device__ inline void ForEachResult(const Tile& tile, const Store& store) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * 16 * Tile::kRowTiles + lane / 4;
#pragma unroll
  for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        store(first_row + i * 16 + e / 2 * 8, j * 8 + lane % 4 * 2 + e % 2, tile.acc[i][j][e]);
      }
    }
  }
}

}  // namespace arborist::kernels::cuda
