#include "kernels/block_attention_gqa/block_attention_gqa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

using Kernel = absl::Status (*)(const BlockAttentionGqaArgs&, StreamView);

struct Case {
  int64_t block;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t context;
  std::vector<float> query, context_key, context_value, block_key, block_value;
  std::vector<int32_t> context_begin, block_begin, block_end;

  BlockAttentionGqaArgs Args(std::vector<float>& out) const {
    out.assign(block * heads * head_dim, std::nanf(""));
    return {.query = {query.data(), block, heads, head_dim},
            .context_key = context_key.data(),
            .context_value = context_value.data(),
            .context = context,
            .context_begin = {context_begin.data(), block},
            .block_begin = {block_begin.data(), block},
            .block_end = {block_end.data(), block},
            .block_key = {block_key.data(), block, kv_heads, head_dim},
            .block_value = {block_value.data(), block, kv_heads, head_dim},
            .scale = 0.25f,
            .out = {out.data(), block, heads, head_dim}};
  }
};

enum class Layer { kFull, kCausalWindow, kRandomRanges };

Case RandomCase(int64_t block, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t context,
                Layer layer) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal(0, 1);
  Case c{block, heads, kv_heads, head_dim, context, {}, {}, {}, {}, {}, {}, {}, {}};
  const auto fill = [&](std::vector<float>& values, int64_t count) {
    values.resize(count);
    for (float& value : values) {
      value = normal(random);
    }
  };
  fill(c.query, block * heads * head_dim);
  fill(c.context_key, context * kv_heads * head_dim);
  fill(c.context_value, context * kv_heads * head_dim);
  fill(c.block_key, block * kv_heads * head_dim);
  fill(c.block_value, block * kv_heads * head_dim);
  constexpr int64_t kWindow = 20;
  for (int64_t i = 0; i < block; ++i) {
    int64_t begin = 0;
    int64_t block_begin = 0;
    int64_t block_end = block;
    if (layer == Layer::kCausalWindow) {
      begin = std::clamp<int64_t>(context + i - kWindow + 1, 0, context);
      block_begin = std::max<int64_t>(0, i - kWindow + 1);
      block_end = i + 1;
    } else if (layer == Layer::kRandomRanges) {
      begin = static_cast<int64_t>(random() % (context + 1));
      block_begin = static_cast<int64_t>(random() % (i + 1));
      block_end = i + 1 + static_cast<int64_t>(random() % (block - i));
    }
    c.context_begin.push_back(static_cast<int32_t>(begin));
    c.block_begin.push_back(static_cast<int32_t>(block_begin));
    c.block_end.push_back(static_cast<int32_t>(block_end));
  }
  return c;
}

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
      narrowed.context_begin[i] = static_cast<int32_t>(c.context);
      narrowed.block_begin[i] = static_cast<int32_t>(i);
      narrowed.block_end[i] = static_cast<int32_t>(i) + 1;
    }
    const std::vector<float> got = RunKernel(cpu::BlockAttentionGqa, narrowed, 2);
    for (int64_t i = 0; i < c.heads * c.head_dim; ++i) {
      ASSERT_EQ(got[i], expected[i]);
    }
  }
}

TEST(BlockAttentionGqaTest, KeysOutsideARangeAreNeverRead) {
  Case c = RandomCase(8, 4, 2, 16, 100, Layer::kCausalWindow);
  for (int64_t i = 0; i < c.context_begin[0] * c.kv_heads * c.head_dim; ++i) {
    c.context_key[i] = c.context_value[i] = std::nanf("");
  }
  for (float value : RunKernel(cpu::BlockAttentionGqa, c, 2)) {
    EXPECT_TRUE(std::isfinite(value));
  }
}

TEST(BlockAttentionGqaTest, AQueryThatSeesOneKeyTakesItsValue) {
  Case c = RandomCase(4, 4, 2, 16, 10, Layer::kFull);
  for (int i = 0; i < 4; ++i) {
    c.context_begin[i] = 10;
    c.block_begin[i] = i;
    c.block_end[i] = i + 1;
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
            "context_begin[2]=11, expected 0..context=10");
  EXPECT_EQ(message([](Case& c, Args&) { c.block_begin[2] = 3; }), "block_begin[2]=3, expected 0..2");
  EXPECT_EQ(message([](Case& c, Args&) { c.block_end[2] = 2; }), "block_end[2]=2, expected 3..4");
  EXPECT_EQ(message([](Case& c, Args&) { c.block_end[2] = 5; }), "block_end[2]=5, expected 3..4");
  EXPECT_EQ(message([](Case&, Args& a) { a.block_key.heads = 3; }),
            "block_key.heads=3, expected a divisor of query.heads=4");
  EXPECT_EQ(message([](Case&, Args& a) { a.query.columns = 300; }),
            "query.columns=300, expected a head_dim of 1..256");
  EXPECT_EQ(message([](Case&, Args& a) { a.context_key = nullptr; }),
            "context_key or context_value is null, expected 10 rows");
  EXPECT_EQ(message([](Case&, Args& a) { a.block_end.size = 3; }), "block_end.size=3, expected query.rows=4");
  EXPECT_THAT(message([](Case&, Args& a) { a.scale = std::nanf(""); }), testing::HasSubstr("scale=nan"));
}

}  // namespace
}  // namespace arborist::kernels
