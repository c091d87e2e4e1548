#include <vector>

#include "gtest/gtest.h"
#include "kernels/embedding_lookup/embedding_lookup.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class EmbeddingLookupCudaTest : public CudaTest {};

TEST_F(EmbeddingLookupCudaTest, EveryStoredTypeIsWidenedExactlyForEveryShape) {
  Random random;
  SCOPED_TRACE(random.seed());
  constexpr int64_t kVocabulary = 40;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const int64_t columns : {1, 33, 64, 1030, 7168}) {
      const StoredMatrix table(random, dtype, kVocabulary, columns);
      const DeviceArray<uint8_t> table_memory(BytesOf(table.view()));
      for (const int64_t rows : {0, 1, 3, 200}) {
        for (const int64_t gap : {0, 4, 5}) {  // behind each row of the output; it stays as it is
          std::vector<TokenId> token(rows);
          for (TokenId& id : token) {
            id = TokenId{static_cast<int32_t>(random.Uniform(0, kVocabulary - 1))};
          }
          std::vector<float> want = Poisoned(rows * (columns + gap));
          const DeviceArray<float> got(want);
          const DeviceArray<TokenId> token_memory(token);
          EmbeddingLookupArgs args{
              {token.data(), rows}, table.view(), {want.data(), rows, columns, columns + gap}};
          ASSERT_TRUE(reference::EmbeddingLookup(args, {}).ok());
          args.token = token_memory.const_view();
          args.table = OnDevice(table.view(), table_memory);
          args.out.data = got.data();
          ASSERT_TRUE(cuda::EmbeddingLookup(args, stream()).ok());
          EXPECT_TRUE(SameBits(got.Read(), want));
        }
      }
    }
  }
}

TEST_F(EmbeddingLookupCudaTest, AnIdOutsideTheTableGivesZerosAndReadsNothing) {
  Random random;
  const StoredMatrix table(random, DType::kBF16, 4, 8);
  const DeviceArray<uint8_t> table_memory(BytesOf(table.view()));
  const DeviceArray<TokenId> token({TokenId{-1}, TokenId{4}, TokenId{1 << 30}, TokenId{-(1 << 30)}});
  const DeviceArray<float> out(4 * 8);
  ASSERT_TRUE(cuda::EmbeddingLookup(
                  {token.const_view(), OnDevice(table.view(), table_memory), out.view(4, 8)}, stream())
                  .ok());
  EXPECT_EQ(out.Read(), std::vector<float>(32, 0.0f));
}

}  // namespace
}  // namespace arborist::kernels
