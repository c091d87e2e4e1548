#pragma once

namespace arborist::kernels::cuda {

// v[i] of all lanes summed; lane i % kCount's v[0] is the sum of value i. Halving the values with the lanes
// takes a fifth of the shuffles of kCount full sums and gives their bits.
template <int kCount>
__device__ inline void SumOverLanes(float (&v)[kCount], int lane) {
#pragma unroll
  for (int offset = 16; offset >= 1; offset /= 2) {
    if (offset < kCount) {
      const bool upper = (lane & offset) != 0;
#pragma unroll
      for (int i = 0; i < offset; ++i) {
        const float send = upper ? v[i] : v[i + offset];
        const float keep = upper ? v[i + offset] : v[i];
        v[i] = keep + __shfl_xor_sync(0xffffffffu, send, offset);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        v[i] += __shfl_xor_sync(0xffffffffu, v[i], offset);
      }
    }
  }
}

}  // namespace arborist::kernels::cuda
