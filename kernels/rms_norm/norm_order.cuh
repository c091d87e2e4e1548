#pragma once

#include <cuda_runtime.h>

#include <cstdint>

// The order of a row's sum of squares on a GPU, for kernels that norm rows on their way. Which threads share
// a row follows from the number of columns alone: quad q is summed by thread q % threads, in four lanes by
// ascending q; lanes, then the lanes of a warp by halves, then warps in order.
namespace arborist::kernels::cuda {

constexpr int NormThreads(int64_t columns) {
  return columns <= 512 ? 32 : columns <= 2048 ? 128 : columns <= 7168 ? 256 : columns <= 16384 ? 512 : 1024;
}

__device__ inline void AddSquares(const float4& x, float4& sum) {
  sum.x = fmaf(x.x, x.x, sum.x);
  sum.y = fmaf(x.y, x.y, sum.y);
  sum.z = fmaf(x.z, x.z, sum.z);
  sum.w = fmaf(x.w, x.w, sum.w);
}

// Of a warp's lanes, in every thread.
__device__ inline float SumOfWarp(const float4& lanes) {
  float sum = (lanes.x + lanes.y) + (lanes.z + lanes.w);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  }
  return sum;
}

__device__ inline float InverseNorm(float squares, int64_t columns, float epsilon) {
  return 1.0f / sqrtf(squares / static_cast<float>(columns) + epsilon);
}

}  // namespace arborist::kernels::cuda
