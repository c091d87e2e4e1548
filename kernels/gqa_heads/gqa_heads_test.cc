#include "kernels/gqa_heads/gqa_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/gqa_heads/heads_case.h"
#include "kernels/testing/compare.h"

namespace arborist::kernels {
namespace {

using gqa_heads::Case;
using gqa_heads::RunOnHost;

TEST(GqaHeadsTest, EqualsNormThenRotationOfEveryHead) {
  testing::Random random;
  SCOPED_TRACE(random.seed());
  for (const gqa_heads::Shape& shape : gqa_heads::ManyShapes()) {
    const Case c(shape, random);
    ThreadPool pool(1);
    const std::vector<float> want = RunOnHost(c, reference::GqaHeads, {.threads = &pool});
    testing::ForEveryIsaAndThreadCount([&](StreamView stream) {
      // A few roundings of the sum of squares, one for each step after it.
      ASSERT_TRUE(testing::Close(RunOnHost(c, cpu::GqaHeads, stream), want, 2e-6)) << shape.head_dim;
    });
  }
}

TEST(GqaHeadsTest, OutputsMayBeTheInputs) {
  testing::Random random;
  const int64_t rows = 6, heads = 3, dim = 32;
  std::vector<float> x = random.Normals(rows * heads * dim), value = random.Normals(rows * heads * dim);
  const std::vector<float> table(10 * dim / 2, 0.5f), before = value;
  const std::vector<int32_t> position(rows, 3);
  GqaHeadsArgs args;
  args.key_in = {x.data(), rows, heads * dim, heads * dim};
  args.value_in = {value.data(), rows, heads * dim, heads * dim};
  args.epsilon = 1e-6f;
  args.position = {position.data(), rows};
  args.cosine = args.sine = {table.data(), 10, dim / 2, dim / 2};
  std::vector<float> apart(x.size()), value_apart(x.size());
  args.key = {apart.data(), rows, heads, dim};
  args.value = {value_apart.data(), rows, heads, dim};
  ThreadPool pool(2);
  ASSERT_TRUE(cpu::GqaHeads(args, {.threads = &pool}).ok());
  args.key.data = x.data();
  args.value.data = value.data();
  ASSERT_TRUE(cpu::GqaHeads(args, {.threads = &pool}).ok());
  EXPECT_EQ(x, apart);
  EXPECT_EQ(value, before);
}

TEST(GqaHeadsTest, ShapesAndContentsAreRefusedByFieldAndValue) {
  testing::Random random;
  const Case c({4, 2, 4, 2, 16}, random);
  const auto message = [&](auto change) {
    std::vector<float> out(c.query_size() + 2 * c.key_size() + 2 * c.plane_size());
    GqaHeadsArgs args = c.Args({c.query_in.data(), c.key_value_in.data(), c.query_norm.data(),
                                c.key_norm.data(), c.cosine.data(), c.sine.data(), c.position.data(),
                                c.slot.data(), out.data(), out.data(), out.data(), out.data(), out.data()});
    change(args);
    return std::string(ValidateGqaHeads(args).message());
  };
  using Args = GqaHeadsArgs;
  EXPECT_EQ(message([](Args&) {}), "");
  EXPECT_EQ(message([](Args& a) { a.position.size = 5; }), "position.size=5, expected 6");
  EXPECT_EQ(message([](Args& a) { a.slot.size = 3; }), "slot.size=3, expected 2");
  EXPECT_EQ(message([](Args& a) { a.key_in.columns = 31; }), "key_in.columns=31, expected 32");
  EXPECT_EQ(message([](Args& a) { a.query.rows = 3; }), "query.rows=3, expected 4");
  EXPECT_EQ(message([](Args& a) { a.cosine.columns = 7; }), "cosine.columns=7, expected 8");
  EXPECT_EQ(message([](Args& a) { a.key.columns = 15; }),
            "key.columns=15, expected an even head_dim of 2..256");
  EXPECT_EQ(message([](Args& a) { a.epsilon = 0; }), "epsilon=0, expected > 0");
  EXPECT_EQ(message([](Args& a) { a.plane_rows = 1; }), "slot[0]=4, expected below plane_rows=1");
  EXPECT_THAT(message([](Args& a) { a.key_plane = nullptr; }), ::testing::HasSubstr("key_plane"));
  EXPECT_THAT(message([](Args& a) { a.cosine.rows = a.sine.rows = 0; }),
              ::testing::HasSubstr("position[0]="));
}

}  // namespace
}  // namespace arborist::kernels
