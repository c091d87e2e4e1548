#include <gtest/gtest.h>

#include <vector>

#include "kernels/gqa_heads/gqa_heads.h"
#include "kernels/gqa_heads/heads_case.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"

namespace arborist::kernels {
namespace {

using gqa_heads::Case;
using testing::DeviceArray;

class GqaHeadsCudaTest : public testing::CudaTest {
 protected:
  // All outputs, one after the other; NaN where nothing was written.
  std::vector<float> Run(const Case& c) {
    const DeviceArray<float> query_in(c.query_in), key_value_in(c.key_value_in), query_norm(c.query_norm),
        key_norm(c.key_norm), cosine(c.cosine), sine(c.sine);
    const DeviceArray<int32_t> position(c.position), slot(c.slot);
    const DeviceArray<float> query(c.query_size()), key(c.key_size()), value(c.key_size()),
        key_plane(c.plane_size()), value_plane(c.plane_size());
    const absl::Status status =
        cuda::GqaHeads(c.Args({query_in.data(), key_value_in.data(), query_norm.data(), key_norm.data(),
                               cosine.data(), sine.data(), position.data(), slot.data(), query.data(),
                               key.data(), value.data(), key_plane.data(), value_plane.data()}),
                       stream());
    EXPECT_TRUE(status.ok()) << status;
    Finish();
    std::vector<float> all;
    for (const DeviceArray<float>* part : {&query, &key, &value, &key_plane, &value_plane}) {
      const std::vector<float> values = part->Read();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST_F(GqaHeadsCudaTest, EqualsNormThenRotationOfEveryHead) {
  testing::Random random;
  SCOPED_TRACE(random.seed());
  ThreadPool pool(1);
  for (const gqa_heads::Shape& shape : gqa_heads::ManyShapes()) {
    const Case c(shape, random);
    const std::vector<float> want = RunOnHost(c, reference::GqaHeads, {.threads = &pool});
    // A few roundings of the sum of squares, one for each step after it.
    ASSERT_TRUE(testing::Close(Run(c), want, 2e-6)) << shape.head_dim << " " << shape.block_rows;
  }
}

TEST_F(GqaHeadsCudaTest, ARowIsTheSameInABlockAndInTheContext) {
  testing::Random random;
  Case c({6, 6, 4, 2, 32}, random);
  for (int64_t t = 0; t < 6; ++t) {
    std::copy_n(c.key_value_in.begin() + t * c.key_stride, c.key_stride,
                c.key_value_in.begin() + (6 + t) * c.key_stride);
    c.position[6 + t] = c.position[t];
    c.slot[t] = static_cast<int32_t>(t);
  }
  const std::vector<float> all = Run(c);
  const size_t size = c.key_size();
  const float* key = all.data() + c.query_size();
  const float* plane = key + 2 * size;
  EXPECT_TRUE(testing::SameBits({key, size}, {plane, size}));
  EXPECT_TRUE(testing::SameBits({key + size, size}, {plane + c.plane_size(), size}));
}

TEST_F(GqaHeadsCudaTest, PositionsAndSlotsOutOfBoundsStayInMemory) {
  testing::Random random;
  Case c({2, 4, 2, 2, 16}, random);
  c.position = {-1, 1 << 30, 0, 5, -7, 300};
  c.slot = {1 << 30, -5, 9, 2};
  Run(c);  // guards and the sanitizer watch
}

}  // namespace
}  // namespace arborist::kernels
