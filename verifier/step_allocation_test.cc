// A step allocates nothing (operator new is counted). (The model's own test covers its forward
// pass.)
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/testing/count_allocations.h"
#include "verifier/allowed_ids.h"
#include "verifier/host_step_runner.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/fake_model.h"
#include "verifier/testing/host_planes.h"

namespace arborist::verifier {
namespace {

constexpr int kVocabulary = 64;
constexpr int kHidden = 8;

TEST(StepAllocationTest, AStepOfTreesAndChunksAllocatesNothingControlledOrNot) {
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
  const std::vector<kernels::LogitEntry> history = {{.token = TokenId{3}, .output_count = 1, .occurred = 1}};
  const std::vector<TokenId> stop_ids = {TokenId{5}, TokenId{9}};
  AllowedIds allowed(RandomTokens(30, kVocabulary - 1, 2), kVocabulary);
  const std::vector<NodeMasks*> masks = {&allowed};
  const StepControls controls{.penalties = {.repetition = 1.5f, .presence = 1, .entries = {}},
                              .history = history,
                              .counts_nodes = true,
                              .stop_ids = stop_ids,
                              .stops_from = 2,
                              .masks = masks,
                              .top_log_probs = 5};
  const kernels::SamplingParams sampled{.temperature = 1, .top_k = 20, .top_p = 0.9f, .min_p = 0.01f};
  for (const StepControls* of_both : {static_cast<const StepControls*>(nullptr), &controls}) {
    const std::vector<StepTree> trees = {{pages[0].table(), 0, wide, parent, {.temperature = 0}, of_both},
                                         {pages[1].table(), 0, root, no_parent, sampled, of_both}};
    const auto scored = static_cast<ptrdiff_t>(of_both == nullptr ? 0 : 20);
    const std::vector<TokenId> next(tokens.begin() + 1, tokens.begin() + 1 + scored);
    const std::vector<StepChunk> chunks = {
        {pages[2].table(), 0, std::span(tokens).first(of_both == nullptr ? 90 : 20), next}};
    for (int step = 0; step < 3; ++step) {
      const int64_t before = kernels::testing::AllocationCount();
      const bool ok = runner.Run(trees, chunks).ok();
      const int64_t made = kernels::testing::AllocationCount() - before;
      ASSERT_TRUE(ok);
      EXPECT_EQ(made, 0);
      EXPECT_EQ(runner.outcome(0).path.size(), 2u);
      EXPECT_TRUE(runner.outcome(0).compacted);
      EXPECT_EQ(runner.outcome(0).top_log_probs.size(), of_both == nullptr ? 0u : 10u);
    }
  }
}

}  // namespace
}  // namespace arborist::verifier
