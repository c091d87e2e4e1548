#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// The instructions of sm_80 and later that the tensor-core kernel is made of.
namespace arborist::kernels::cuda {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory, behind the caller's back; zeros where !valid (the source is not read then).
__device__ inline void CopyAsync(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0));
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Until at most `pending` of this thread's groups are under way.
template <int pending>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory");
}

// The 128 bytes there set out for the second cache.
__device__ inline void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from));
}

// Four 8x8 matrices of bf16; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void LoadMatrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void LoadMatricesTransposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// c[16, 8] += a[16, 16] b[16, 8]
__device__ inline void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace arborist::kernels::cuda
