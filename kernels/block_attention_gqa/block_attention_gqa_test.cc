#include "kernels/block_attention_gqa/block_attention_gqa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/block_attention_gqa/gqa_case.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

using gqa::Case;
using gqa::Layer;
using gqa::RandomCase;
using Kernel = absl::Status (*)(const BlockAttentionGqaArgs&, StreamView);

std::vector<float> RunKernel(Kernel kernel, const Case& c, int threads) {
  ThreadPool pool(threads);
  std::vector<float> out;
  const absl::Status status = kernel(c.Args(out), {.threads = &pool});
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

std::vector<Case> ManyCases() {
  std::vector<Case> cases;
  for (Layer layer : {Layer::kFull, Layer::kCausalWindow, Layer::kRandomRanges}) {
    for (int64_t context : {0, 1, 63, 64, 65, 200}) {
      cases.push_back(RandomCase(8, 8, 2, 32, context, layer));
      cases.push_back(RandomCase(1, 4, 4, 7, context, layer));
      cases.push_back(RandomCase(16, 6, 1, 100, context, layer));
      cases.push_back(RandomCase(3, 80, 2, 16, context, layer));
      cases.push_back(RandomCase(33, 3, 3, 256, context, layer));
      cases.push_back(RandomCase(8, 8, 4, 32, context, layer, /*streams=*/3));
    }
  }
  return cases;
}

TEST(BlockAttentionGqaTest, EqualsPlainSoftmaxOverEachQuerysRanges) {
  for (const Case& c : ManyCases()) {
    const std::vector<float> expected = RunKernel(reference::BlockAttentionGqa, c, 1);
    const std::vector<float> got = RunKernel(cpu::BlockAttentionGqa, c, 2);
    for (size_t i = 0; i < got.size(); ++i) {
      // Weights sum to 1 and values are below 5: some hundred float roundings.
      ASSERT_TRUE(std::abs(got[i] - expected[i]) <= 1e-5f) << i << ": " << got[i] << " " << expected[i];
    }
  }
}

TEST(BlockAttentionGqaTest, ThreadsIsaAndOtherQueriesChangeNoBit) {
  for (const Case& c : ManyCases()) {
    const std::vector<float> expected = RunKernel(cpu::BlockAttentionGqa, c, 1);
    for (Isa isa : SupportedIsas()) {
      ForceIsa(isa);  // the best one stays in force
      for (int threads : {1, 2, 5}) {
        ASSERT_EQ(RunKernel(cpu::BlockAttentionGqa, c, threads), expected) << Name(isa);
      }
    }
    // Narrow every other query's range: the first one must not notice.
    Case narrowed = c;
    for (int64_t i = 1; i < c.block; ++i) {
      narrowed.NarrowToItself(i);
    }
    const std::vector<float> got = RunKernel(cpu::BlockAttentionGqa, narrowed, 2);
    for (int64_t i = 0; i < c.heads * c.head_dim; ++i) {
      ASSERT_EQ(got[i], expected[i]);
    }
  }
}

TEST(BlockAttentionGqaTest, AStreamIsTheSameAloneAndAmongOthers) {
  const Case c = RandomCase(8, 8, 4, 32, 130, Layer::kRandomRanges, /*streams=*/4);
  const std::vector<float> together = RunKernel(cpu::BlockAttentionGqa, c, 2);
  for (int64_t s = 0; s < 4; ++s) {
    const std::vector<float> alone = RunKernel(cpu::BlockAttentionGqa, c.Alone(s), 2);
    ASSERT_TRUE(
        std::equal(alone.begin(), alone.end(), together.begin() + s * static_cast<int64_t>(alone.size())));
  }
}

TEST(BlockAttentionGqaTest, KeysOutsideARangeAreNeverRead) {
  Case c = RandomCase(8, 4, 2, 16, 100, Layer::kCausalWindow);
  c.ForbidUnseenRows();
  for (float value : RunKernel(cpu::BlockAttentionGqa, c, 2)) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(BlockAttentionGqaTest, AQueryThatSeesOneKeyTakesItsValue) {
  Case c = RandomCase(4, 4, 2, 16, 10, Layer::kFull);
  for (int i = 0; i < 4; ++i) {
    c.NarrowToItself(i);
  }
  const std::vector<float> out = RunKernel(cpu::BlockAttentionGqa, c, 1);
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t column = 0; column < 16; ++column) {
        EXPECT_EQ(out[(i * 4 + head) * 16 + column], c.block_value[(i * 2 + head / 2) * 16 + column]);
      }
    }
  }
}

TEST(BlockAttentionGqaTest, ShapesAndRangesAreRefusedByFieldAndValue) {
  const Case c = RandomCase(4, 4, 2, 16, 10, Layer::kFull);
  const auto message = [&](auto change) {
    Case changed = c;
    std::vector<float> out;
    BlockAttentionGqaArgs args = changed.Args(out);
    change(changed, args);
    ThreadPool pool(1);
    const absl::Status status = cpu::BlockAttentionGqa(args, {.threads = &pool});
    return std::string(status.message());
  };
  using Args = BlockAttentionGqaArgs;
  EXPECT_EQ(message([](Case&, Args&) {}), "");
  EXPECT_EQ(message([](Case& c, Args&) { c.context_begin[2] = 11; }),
            "context_begin[2]=11, expected 0..context_rows=10");
  EXPECT_EQ(message([](Case& c, Args&) { c.block_begin[2] = 3; }), "block_begin[2]=3, expected 0..2");
  EXPECT_EQ(message([](Case& c, Args&) { c.block_end[2] = 2; }), "block_end[2]=2, expected 3..4");
  EXPECT_EQ(message([](Case& c, Args&) { c.block_end[2] = 5; }), "block_end[2]=5, expected 3..4");
  EXPECT_EQ(message([](Case&, Args& a) { a.block_key.heads = 3; }),
            "block_key.heads=3, expected a divisor of query.heads=4");
  EXPECT_EQ(message([](Case&, Args& a) { a.query.columns = 300; }),
            "query.columns=300, expected a head_dim of 1..256");
  EXPECT_EQ(message([](Case&, Args& a) { a.context_key = nullptr; }),
            "context_key or context_value is null, expected 13 rows");
  EXPECT_EQ(message([](Case& c, Args&) { c.context_rows[0] = 11; }),
            "context_rows[0]=11, expected 0..max_context=10");
  EXPECT_EQ(message([](Case& c, Args&) { c.context_first[0] = 4; }),
            "context_first[0]=4, expected room for 10 rows in plane_rows=13");
  EXPECT_EQ(message([](Case&, Args& a) { a.block = 3; }),
            "block=3, expected 1..64, a divisor of query.rows=4");
  EXPECT_EQ(message([](Case&, Args& a) { a.context_rows.size = 2; }),
            "context_rows.size=2, expected streams=1");
  EXPECT_EQ(message([](Case&, Args& a) { a.block_end.size = 3; }), "block_end.size=3, expected query.rows=4");
  EXPECT_THAT(message([](Case&, Args& a) { a.scale = std::nanf(""); }), testing::HasSubstr("scale=nan"));
}

}  // namespace
}  // namespace arborist::kernels
