#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using testing::CudaTest;
using testing::DeviceArray;

constexpr int64_t kTile = int64_t{1} << 22;

__global__ void ExpOfBits(uint32_t first, float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = ExpInline(std::bit_cast<float>(first + i));
}
__global__ void LogOfBits(uint32_t first, float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = LogOfNormal(std::bit_cast<float>(first + i));
}
__global__ void GumbelOfWords(uint32_t first, float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = GumbelOfWord(first + i);
}
__global__ void GumbelOfIds(uint64_t seed, uint32_t sample_index, int32_t position, float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = GumbelInline(seed, sample_index, position, static_cast<int32_t>(i));
}

// NaN equals NaN whatever its payload: neither the sampler nor the router shows one to anybody.
int64_t Differences(const std::vector<float>& got, const std::vector<float>& want) {
  int64_t differences = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool both_nan = got[i] != got[i] && want[i] != want[i];
    differences += both_nan || std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(want[i]) ? 0 : 1;
  }
  return differences;
}

class ExactMathCudaTest : public CudaTest {
 protected:
  using Kernel = void (*)(uint32_t, float*);

  std::vector<float> OnDevice(Kernel kernel, uint32_t first) {
    DeviceArray<float> out(kTile);
    kernel<<<kTile / 256, 256>>>(first, out.data());
    return out.Read();
  }
  template <typename Host>
  std::vector<float> OnHost(const Host& host, uint32_t first) {
    std::vector<float> out(kTile);
    for (uint32_t i = 0; i < kTile; ++i) {
      out[i] = host(first + i);
    }
    return out;
  }
  // Tiles of 2^22 consecutive bit patterns; 1024 of them would be all.
  uint32_t RandomTile(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random_() % (high - low - kTile));
  }

  std::mt19937_64 random_{std::random_device{}()};
};

TEST_F(ExactMathCudaTest, ExpIsTheHostsBitForBitOverEveryKindOfFloat) {
  // Around zero, the interesting exponents of both signs, the ends, infinities and NaN.
  std::vector<uint32_t> firsts = {0,           0x3f000000u, 0x40000000u, 0x42800000u, 0x7f600000u,
                                  0x80000000u, 0xbf000000u, 0xc1000000u, 0xc2800000u, 0xff600000u};
  for (int i = 0; i < 6; ++i) {
    firsts.push_back(RandomTile(0, 0x7f800000u));
    firsts.push_back(RandomTile(0xbc000000u, 0xc3000000u));
  }
  for (const uint32_t first : testing::Thinned(firsts, 4)) {
    EXPECT_EQ(Differences(OnDevice(ExpOfBits, first),
                          OnHost([](uint32_t bits) { return ExactExp(std::bit_cast<float>(bits)); }, first)),
              0)
        << "from bits " << first;
  }
}

TEST_F(ExactMathCudaTest, LogIsTheHostsBitForBitOverNormalFloats) {
  std::vector<uint32_t> firsts = {0x00800000u, 0x3f000000u, 0x3f600000u, 0x3f800000u,
                                  0x7f800000u - static_cast<uint32_t>(kTile)};
  for (int i = 0; i < 6; ++i) {
    firsts.push_back(RandomTile(0x00800000u, 0x7f800000u));
  }
  for (const uint32_t first : testing::Thinned(firsts, 4)) {
    EXPECT_EQ(
        Differences(OnDevice(LogOfBits, first),
                    OnHost([](uint32_t bits) { return LogOfNormal(std::bit_cast<float>(bits)); }, first)),
        0)
        << "from bits " << first;
  }
}

TEST_F(ExactMathCudaTest, NoiseOfEveryKindOfWordIsTheHostsBitForBit) {
  std::vector<uint32_t> firsts = {0, 0x7fe00000u, 0xffffffffu - static_cast<uint32_t>(kTile) + 1};
  for (int i = 0; i < 6; ++i) {
    firsts.push_back(static_cast<uint32_t>(random_()));
  }
  for (const uint32_t first : testing::Thinned(firsts, 4)) {
    EXPECT_EQ(Differences(OnDevice(GumbelOfWords, first), OnHost(GumbelOfWord, first)), 0)
        << "from word " << first;
  }
}

TEST_F(ExactMathCudaTest, NoiseOfAnIdIsTheHostsBitForBit) {
  for (int round = 0; round < testing::Small(4, 2); ++round) {
    const uint64_t seed = random_();
    const auto sample_index = static_cast<uint32_t>(random_());
    const auto position = static_cast<int32_t>(random_() >> 33);
    DeviceArray<float> out(kTile);
    GumbelOfIds<<<kTile / 256, 256>>>(seed, sample_index, position, out.data());
    std::vector<float> want(kTile);
    GumbelRow(seed, sample_index, position, 0, kTile, want.data());
    EXPECT_EQ(Differences(out.Read(), want), 0) << "seed " << seed;
  }
}

}  // namespace
}  // namespace arborist::kernels
