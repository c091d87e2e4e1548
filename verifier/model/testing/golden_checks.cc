#include "verifier/model/testing/golden_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/testing/small_shapes.h"

namespace arborist::verifier::testing {
namespace {

using kernels::testing::Small;

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

int64_t Argmax(const float* row, int64_t size) { return std::max_element(row, row + size) - row; }

std::unique_ptr<Harness> MakeHarness(const HarnessOptions& options) {
  auto harness = Harness::Make(options);
  EXPECT_TRUE(harness.ok()) << harness.status();
  return harness.ok() ? *std::move(harness) : nullptr;
}

}  // namespace

void CheckGolden(const std::string& name, const HarnessOptions& options, double tolerance) {
  const Golden golden = ReadGolden(name);
  const auto harness = MakeHarness(options);
  ASSERT_NE(harness, nullptr);
  const int64_t tokens = static_cast<int64_t>(golden.tokens.size());
  const auto output = harness->Run(golden.tokens, static_cast<int>(tokens));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_LE(RelativeError(output->logits, golden.logits), tolerance);
  for (int64_t t = 0; t < tokens; ++t) {
    EXPECT_EQ(Argmax(output->logits.data() + t * golden.vocabulary, golden.vocabulary),
              Argmax(golden.logits.data() + t * golden.vocabulary, golden.vocabulary))
        << "position " << t;
  }
  const int64_t layers = harness->config().layers, hidden = harness->config().hidden_size;
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<float> got, want;
    for (int64_t t = 0; t < tokens; ++t) {
      const float* tap = output->taps.data() + (t * layers + layer) * hidden;
      const float* expected = golden.hidden.data() + ((layer + 1) * tokens + t) * hidden;
      got.insert(got.end(), tap, tap + hidden);
      want.insert(want.end(), expected, expected + hidden);
    }
    EXPECT_LE(RelativeError(got, want), tolerance) << "after layer " << layer;
  }
}

void CheckChunks(const std::string& name, const HarnessOptions& options) {
  const Golden golden = ReadGolden(name);
  const auto whole = MakeHarness(options);
  ASSERT_NE(whole, nullptr);
  const auto want = whole->Run(golden.tokens, static_cast<int>(golden.tokens.size()));
  ASSERT_TRUE(want.ok()) << want.status();
  for (const int threads : Small(std::vector{1, 3}, std::vector{1})) {
    for (const int chunk : Small(std::vector{1, 7, 64}, std::vector{17})) {
      HarnessOptions with = options;
      with.threads = threads;
      const auto harness = MakeHarness(with);
      ASSERT_NE(harness, nullptr);
      const auto got = harness->Run(golden.tokens, chunk);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(SameBits(got->logits, want->logits)) << "chunk " << chunk << ", threads " << threads;
      EXPECT_TRUE(SameBits(got->taps, want->taps)) << "chunk " << chunk << ", threads " << threads;
      EXPECT_TRUE(harness->CommittedKv() == whole->CommittedKv())
          << "chunk " << chunk << ", threads " << threads;
    }
  }
}

void CheckTreeNodes(const std::string& name, const HarnessOptions& options) {
  const Golden golden = ReadGolden(name);
  const auto token = [&](int i) { return golden.tokens[i % golden.tokens.size()]; };
  const std::vector<Node> tree = {{token(30), -1}, {token(1), 0}, {token(2), 0}, {token(3), 1},
                                  {token(4), 2},   {token(5), 2}, {token(6), 5}, {token(7), 3}};
  for (const int prefix : Small(std::vector{1, 33, 60, 63, 64, 126, 127, 130}, std::vector{33})) {
    if (prefix > static_cast<int>(golden.tokens.size())) {
      continue;
    }
    const std::vector<TokenId> committed(golden.tokens.begin(), golden.tokens.begin() + prefix);
    const auto harness = MakeHarness(options);
    ASSERT_NE(harness, nullptr);
    ASSERT_TRUE(harness->Run(committed, prefix).ok());
    const auto got = harness->Step(tree);
    ASSERT_TRUE(got.ok()) << got.status();
    for (int node = Small(0, 4); node < static_cast<int>(tree.size()); node += Small(1, 3)) {
      std::vector<TokenId> path;
      for (int i = node; i >= 0; i = tree[i].parent) {
        path.insert(path.begin(), tree[i].token);
      }
      const auto plain = MakeHarness(options);
      ASSERT_TRUE(plain->Run(committed, Small(16, 40)).ok());
      const auto want = plain->Run(path, 1);
      ASSERT_TRUE(want.ok());
      const int64_t vocabulary = golden.vocabulary;
      EXPECT_EQ(std::memcmp(got->logits.data() + node * vocabulary,
                            want->logits.data() + (static_cast<int64_t>(path.size()) - 1) * vocabulary,
                            static_cast<size_t>(vocabulary) * sizeof(float)),
                0)
          << "node " << node << " behind " << prefix;
    }
  }
}

}  // namespace arborist::verifier::testing
