#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// How bf16 weights reach the tensor cores. A lane of a warp owns pieces of 8 neighbouring inputs (16 bytes)
// of one weight row, and copies them ahead of their use into slots of shared memory that only it reads again:
// a queue that needs no barrier and stays full from one expert to the next.
//
// Lane (g, q) = (lane / 4, lane % 4) owns inputs 8q..8q+7 of a step of 32, of weight rows g and g + 8 and of
// token g. mma.m16n8k16 wants inputs 2q, 2q+1, 2q+8, 2q+9 there: a step's inputs are permuted, alike on both
// sides, so that a piece is two mma's operands.
namespace arborist::kernels::cuda {

__device__ inline void CopyPieceAhead(void* to, const void* from, int bytes) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void EndOfStage() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int kPending>
__device__ inline void WaitForStage() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Inputs [k, k + 8) of a row of `inputs` in all (0 if the row does not exist); zeros beyond. Element by
// element: for shapes whose rows do not begin or end at 16 bytes. Kept out of the fast path's way.
__device__ __noinline__ uint4 LoadPieceSlowly(const uint16_t* row, int k, int inputs) {
  uint32_t word[4] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (k + i < inputs) {
      word[i / 2] |= static_cast<uint32_t>(row[k + i]) << (i % 2 * 16);
    }
  }
  return {word[0], word[1], word[2], word[3]};
}
// Rows of `inputs` elements each from `matrix` begin at multiples of 16 bytes.
__device__ inline bool RowsAligned(const void* matrix, int inputs) {
  return (reinterpret_cast<uintptr_t>(matrix) & 15) == 0 && inputs % 8 == 0;
}

// The pieces of rows `row` and `row + 8` of a matrix [rows, inputs], for any shape; by value, so that the
// ring that calls it stays in registers.
__device__ __noinline__ void CopyPiecesSlowly(uint4* upper, uint4* lower, const uint16_t* matrix, int row,
                                              int rows, int k, int inputs) {
  const bool aligned = RowsAligned(matrix, inputs);
  for (int i = 0; i < 2; ++i) {
    const bool exists = row + 8 * i < rows;
    const uint16_t* from = matrix + (exists ? int64_t{row + 8 * i} * inputs : 0);
    uint4* const to = i == 0 ? upper : lower;
    if (aligned) {
      const int bytes = exists ? min(max(2 * (inputs - k), 0), 16) : 0;
      CopyPieceAhead(to, from + (bytes > 0 ? k : 0), bytes);
    } else {
      *to = LoadPieceSlowly(from, k, exists ? inputs : 0);
    }
  }
}

__device__ inline uint32_t RoundPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline void Mma(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                           uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// One step of 32 inputs: weight rows g (`upper`) and g + 8 (`lower`) with token g.
__device__ inline void MmaStep(float (&sum)[4], const uint4& upper, const uint4& lower, const uint4& token) {
  Mma(sum, upper.x, lower.x, upper.y, lower.y, token.x, token.y);
  Mma(sum, upper.z, lower.z, upper.w, lower.w, token.z, token.w);
}

}  // namespace arborist::kernels::cuda
