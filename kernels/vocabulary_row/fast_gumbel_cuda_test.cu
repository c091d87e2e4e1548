#include <bit>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/vocabulary_row/fast_gumbel.cuh"

namespace arborist::kernels::cuda {
namespace {

using arborist::kernels::testing::CudaTest;
using arborist::kernels::testing::DeviceArray;

struct Worst {
  uint32_t noise;     // bits of the largest distance between fast and exact noise
  uint32_t uniforms;  // words whose u differs
};

// All 2^32 words.
__global__ void Compare(Worst* worst) {
  float largest = 0;
  uint32_t different = 0;
  const uint64_t threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t word = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; word < uint64_t{1} << 32;
       word += threads) {
    const auto w = static_cast<uint32_t>(word);
    const float distance = fabsf(WithFastGumbel(0.0f, w) - GumbelOfWord(w));
    largest = distance <= largest ? largest : distance;  // NaN stays
    const float uncut = (static_cast<float>(w) + 0.5f) * 0x1p-32f;
    different += UniformOfWord(w) != fminf(uncut, 1.0f - 0x1p-24f) ? 1 : 0;
  }
  atomicMax(&worst->noise, __float_as_uint(largest) & 0x7fffffffu);
  atomicAdd(&worst->uniforms, different);
}

class FastGumbelCudaTest : public CudaTest {};

TEST_F(FastGumbelCudaTest, EveryWordsNoiseIsTheExactOneWithinTwoHundredThousandths) {
  const DeviceArray<Worst> worst(std::vector<Worst>{{0, 0}});
  Compare<<<2048, 256, 0, static_cast<cudaStream_t>(stream().cuda_stream)>>>(worst.data());
  Finish();
  const Worst found = worst.Read()[0];
  EXPECT_LE(std::bit_cast<float>(found.noise), 2e-5f);
  EXPECT_EQ(found.uniforms, 0u);
  std::printf("largest distance %.3g\n", static_cast<double>(std::bit_cast<float>(found.noise)));
}

}  // namespace
}  // namespace arborist::kernels::cuda
