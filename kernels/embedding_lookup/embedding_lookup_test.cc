#include "kernels/embedding_lookup/embedding_lookup.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

TEST(EmbeddingLookupTest, EveryStoredTypeIsWidenedExactly) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t rows : {1, 3, 200}) {
      const StoredMatrix table(random, dtype, 40, 33);
      std::vector<TokenId> token(rows);
      for (TokenId& id : token) {
        id = TokenId{static_cast<int32_t>(random.Uniform(0, 39))};
      }
      std::vector<float> want = Poisoned(rows * 33);
      ASSERT_TRUE(
          reference::EmbeddingLookup({{token.data(), rows}, table.view(), AsView(want, rows, 33)}, {}).ok());
      ForEveryIsaAndThreadCount([&](StreamView stream) {
        std::vector<float> got = Poisoned(rows * 33);
        ASSERT_TRUE(
            cpu::EmbeddingLookup({{token.data(), rows}, table.view(), AsView(got, rows, 33)}, stream).ok());
        EXPECT_TRUE(SameBits(got, want));
      });
    }
  }
}

TEST(EmbeddingLookupTest, HalfPrecisionSpecialValuesWiden) {
  EXPECT_EQ(ToFloat(Float16{0x3c00}), 1.0f);
  EXPECT_EQ(ToFloat(Float16{0xc000}), -2.0f);
  EXPECT_EQ(ToFloat(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(ToFloat(Float16{0x83ff}), -1023 * 0x1p-24f);
  EXPECT_EQ(ToFloat(Float16{0x7bff}), 65504.0f);
  EXPECT_TRUE(ToFloat(Float16{0x7c00}) > 1e38f);
  EXPECT_NE(ToFloat(Float16{0x7e00}), ToFloat(Float16{0x7e00}));
}

TEST(EmbeddingLookupTest, AnIdOutsideTheVocabularyIsNamed) {
  std::vector<float> data(12);
  const std::vector<TokenId> token = {TokenId{2}, TokenId{3}};
  EXPECT_EQ(ValidateEmbeddingLookup({{token.data(), 2}, {data.data(), DType::kF32, 3, 4}, AsView(data, 2, 4)})
                .message(),
            "token[1]=3, expected an id in [0, 3)");
}

}  // namespace
}  // namespace arborist::kernels
