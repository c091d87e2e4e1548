#include <gtest/gtest.h>

#include <vector>

#include "common/base/status_macros.h"
#include "kernels/mla_latents/latents_case.h"
#include "kernels/mla_latents/mla_latents.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using mla_latents::Case;
using mla_latents::RunOnHost;
using testing::DeviceArray;

class MlaLatentsCudaTest : public testing::CudaTest {
 protected:
  using Kernel = absl::Status (*)(const MlaLatentsArgs& args, StreamView stream);

  // Query latents of every row, then the plane.
  template <typename T>
  std::pair<std::vector<float>, std::vector<T>> Run(const Case& c, RopePairing pairing, T nothing,
                                                    Kernel kernel = cuda::MlaLatents) {
    const DeviceArray<float> rows(c.compressed), query_norm(c.query_norm), key_norm(c.key_norm),
        cosine(c.cosine), sine(c.sine);
    const DeviceArray<int32_t> position(c.position), slot(c.slot);
    const DeviceArray<T> plane(std::vector<T>(static_cast<size_t>(Case::kSlots * c.width()), nothing));
    const DType dtype = sizeof(T) == 4 ? DType::kF32 : DType::kBF16;
    const absl::Status status =
        kernel(c.Args(rows.data(), query_norm.data(), key_norm.data(), cosine.data(), sine.data(),
                      position.data(), slot.data(), plane.data(), dtype, pairing),
               stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    const std::vector<float> all = rows.Read();
    std::vector<float> queries;
    for (int64_t t = 0; t < c.shape.rows; ++t) {
      queries.insert(queries.end(), all.begin() + t * c.stride, all.begin() + t * c.stride + c.shape.q_rank);
    }
    return {queries, plane.Read()};
  }
};

TEST_F(MlaLatentsCudaTest, SmallAndLargeRowsEqualNormsRotationAndAppend) {
  testing::Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(1);
  for (const mla_latents::Shape& shape : testing::Thinned(mla_latents::ManyShapes(), 5)) {
    const Case c(shape, random);
    for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
      const auto want = RunOnHost(c, reference::MlaLatents, pairing, {.threads = &pool});
      auto [all, plane] = Run<float>(c, pairing, -7.0f);
      all.insert(all.end(), plane.begin(), plane.end());
      // A few roundings of the sum of squares, one for each step after it.
      ASSERT_TRUE(testing::Close(all, want, 2e-6)) << shape.latent << " " << shape.rows;
      const auto narrow = Run<uint16_t>(c, pairing, 0x1234).second;
      for (size_t i = 0; i < narrow.size(); ++i) {
        ASSERT_EQ(narrow[i], plane[i] == -7.0f ? 0x1234 : ToBFloat16(plane[i]).bits) << "element " << i;
      }
    }
  }
}

// The four kernels that it stands for, on the device.
absl::Status FourKernels(const MlaLatentsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(args.query.columns > 0 ? cuda::RmsNorm(QueryNormOf(args), stream) : absl::OkStatus());
  RETURN_IF_ERROR(cuda::RmsNorm(KeyNormOf(args), stream));
  RETURN_IF_ERROR(cuda::Rope(KeyRotationOf(args), stream));
  return cuda::KvAppend(AppendOf(args), stream);
}

TEST_F(MlaLatentsCudaTest, BitsAreThoseOfTheFourKernels) {
  testing::Random random;
  SCOPED_TRACE(random.seed());
  for (const mla_latents::Shape& shape : testing::Thinned(mla_latents::ManyShapes(), 5)) {
    const Case c(shape, random);
    for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
      const auto one = Run<float>(c, pairing, -7.0f), four = Run<float>(c, pairing, -7.0f, FourKernels);
      ASSERT_TRUE(testing::SameBits(one.first, four.first)) << shape.q_rank;
      ASSERT_TRUE(testing::SameBits(one.second, four.second)) << shape.latent;
      EXPECT_EQ(Run<uint16_t>(c, pairing, 0x1234).second,
                Run<uint16_t>(c, pairing, 0x1234, FourKernels).second);
    }
  }
}

TEST_F(MlaLatentsCudaTest, ARowIsTheSameAloneAndAmongOthers) {
  testing::Random random;
  SCOPED_TRACE(random.seed());
  const Case many({33, 1536, 512, 64}, random);
  const auto together = Run<float>(many, RopePairing::kInterleaved, -7.0f);
  for (const int64_t row : {0, 7, 32}) {
    Case alone({1, 1536, 512, 64}, random);
    alone.query_norm = many.query_norm;
    alone.key_norm = many.key_norm;
    alone.cosine = many.cosine;
    alone.sine = many.sine;
    alone.position = {many.position[row]};
    alone.slot = {many.slot[row]};
    alone.compressed.assign(many.compressed.begin() + row * many.stride,
                            many.compressed.begin() + (row + 1) * many.stride);
    const auto one = Run<float>(alone, RopePairing::kInterleaved, -7.0f);
    const size_t at = static_cast<size_t>(many.slot[row] * many.width());
    EXPECT_TRUE(testing::SameBits({together.first.data() + row * 1536, 1536}, {one.first.data(), 1536}));
    EXPECT_TRUE(testing::SameBits({together.second.data() + at, 576}, {one.second.data() + at, 576}));
  }
}

TEST_F(MlaLatentsCudaTest, PositionsAndSlotsOutOfBoundsStayInMemory) {
  testing::Random random;
  Case c({5, 8, 16, 4}, random);
  c.position = {-1, 1 << 30, 0, 3, -7};
  c.slot = {1 << 30, -5, 9, 2, 200};
  Run<float>(c, RopePairing::kInterleaved, -7.0f);  // guards and the sanitizer watch
}

}  // namespace
}  // namespace arborist::kernels
