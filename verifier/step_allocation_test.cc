// A step allocates nothing (operator new is counted). (The model's own test covers its forward
// pass.)
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/testing/count_allocations.h"
#include "verifier/host_step_runner.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/fake_model.h"
#include "verifier/testing/host_planes.h"

namespace arborist::verifier {
namespace {

constexpr int kVocabulary = 64;
constexpr int kHidden = 8;

TEST(StepAllocationTest, AStepOfTreesAndChunksAllocatesNothing) {
  ThreadPool pool(2);
  FakeModel model(
      {.vocabulary = kVocabulary, .hidden = kHidden, .taps = 1, .max_rows = 200, .max_logits_rows = 100});
  std::vector<float> weight(kHidden * kHidden, 0.5f);
  Projection projection;
  projection.fc = {weight.data(), DType::kF32, kHidden, kHidden};
  projection.norm.assign(kHidden, 1.0f);
  projection.epsilon = 1e-6f;
  const auto device = OpenCpuDevice(pool);
  absl::StatusOr<FeatureProjection> features = FeatureProjection::Create(std::move(projection), 200, *device);
  ASSERT_TRUE(features.ok()) << features.status();
  KvCache cache(HostPlanes({.layers = model.config().layers,
                            .pages = 16,
                            .latent_row = model.config().latent_row(),
                            .feature_row = kHidden}),
                100, 2);
  HostStepRunner runner(
      {.max_rows = 200, .max_logits_rows = 100, .max_sequences = 4, .max_pages_per_sequence = 8}, &model,
      &cache, &*features, kernels::CpuKernels(), {.threads = &pool});

  std::vector<SequencePages> pages;
  for (int i = 0; i < 3; ++i) {
    pages.push_back(cache.pool().NewSequence());
    ASSERT_TRUE(pages.back().Resize(4));
  }
  const std::vector<TokenId> tokens = RandomTokens(90, kVocabulary, 1);
  // Every token as a child of the root: whatever is chosen is accepted, and compacted to the row after it.
  std::vector<TokenId> wide = {TokenId{0}};
  for (int i = kVocabulary - 1; i >= 0; --i) {
    wide.push_back(TokenId{i});
  }
  std::vector<int32_t> parent(wide.size(), 0);
  parent[0] = -1;
  const std::vector<TokenId> root = {TokenId{3}};
  const std::vector<int32_t> no_parent = {-1};
  const std::vector<StepTree> trees = {
      {pages[0].table(), 0, wide, parent, {.temperature = 0}},
      {pages[1].table(), 0, root, no_parent, {.temperature = 1, .top_k = 20, .top_p = 0.9f, .min_p = 0.01f}}};
  const std::vector<StepChunk> chunks = {{pages[2].table(), 0, tokens}};
  for (int step = 0; step < 3; ++step) {
    const int64_t before = kernels::testing::AllocationCount();
    const bool ok = runner.Run(trees, chunks).ok();
    const int64_t made = kernels::testing::AllocationCount() - before;
    ASSERT_TRUE(ok);
    EXPECT_EQ(made, 0);
    EXPECT_EQ(runner.outcome(0).path.size(), 2u);
    EXPECT_TRUE(runner.outcome(0).compacted);
  }
}

}  // namespace
}  // namespace arborist::verifier
