#include "verifier/control_lists.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace arborist::verifier {
namespace {

constexpr int kVocabulary = 70;
constexpr StepCapacity kCapacity{
    .max_rows = 40, .max_logits_rows = 30, .max_sequences = 4, .max_pages_per_sequence = 2};

TokenId T(int id) { return TokenId{id}; }

// The lists of a step, in memory that a fault would not find.
class Lists {
 public:
  Lists(std::vector<StepTree> trees, std::vector<StepChunk> chunks) {
    batch_.Reserve(kCapacity.max_rows, kCapacity.max_sequences, kCapacity.max_pages_per_sequence);
    FillStep(trees, chunks, batch_);
    const ControlCapacity capacity(kCapacity, kVocabulary);
    entry_.resize(static_cast<size_t>(capacity.entries));
    mask_.resize(static_cast<size_t>(capacity.masks * capacity.mask_words), 0xdeadbeef);
    sizes = ControlLists(capacity).Fill(trees, chunks, batch_,
                                        {.row = row.data(),
                                         .sequence = sequence.data(),
                                         .forced = forced.data(),
                                         .top = top.data(),
                                         .top_count = top_count.data(),
                                         .entry = entry_.data(),
                                         .mask = mask_.data()});
  }

  // "token:count", with ! behind a forbidden one.
  std::vector<std::string> Entries(const kernels::EntryRun& run) const {
    std::vector<std::string> all;
    for (int32_t i = run.first; i < run.first + run.count; ++i) {
      const kernels::LogitEntry& entry = entry_[static_cast<size_t>(i)];
      all.push_back(std::to_string(Raw(entry.token)) + ":" + std::to_string(entry.output_count) +
                    (entry.forbidden != 0 ? "!" : ""));
    }
    return all;
  }
  const kernels::LogitEntry& entry(int32_t i) const { return entry_[static_cast<size_t>(i)]; }
  uint32_t MaskWord(int32_t index, int word) const {
    return mask_[static_cast<size_t>(index * ((kVocabulary + 31) / 32) + word)];
  }

  std::vector<kernels::RowControls> row = std::vector<kernels::RowControls>(30);
  std::vector<kernels::SequenceControls> sequence = std::vector<kernels::SequenceControls>(4);
  std::vector<TokenId> forced = std::vector<TokenId>(30, T(99));
  std::vector<kernels::TopKParams> top = std::vector<kernels::TopKParams>(30);
  std::vector<int32_t> top_count = std::vector<int32_t>(30, 99);
  ControlSizes sizes;

 private:
  StepBatch batch_;
  std::vector<kernels::LogitEntry> entry_;
  std::vector<uint32_t> mask_;
};

using Strings = std::vector<std::string>;

const std::vector<int32_t> kPages = {0, 1};
// 0 - 1 - 3 - 4, 0 - 2; node 4 says what 1 and the root say.
const std::vector<TokenId> kTokens = {T(10), T(20), T(30), T(11), T(20)};
const std::vector<int32_t> kParents = {-1, 0, 0, 1, 3};

StepTree Tree(const StepControls* controls) {
  return {.page_table = kPages,
          .root_position = 6,
          .token = kTokens,
          .parent = kParents,
          .sampling = {},
          .controls = controls};
}

TEST(ControlCapacityTest, VeryManySequencesTakeNoMoreThanSomeFullHistories) {
  StepCapacity step{
      .max_rows = 2080, .max_logits_rows = 2080, .max_sequences = 4096, .max_pages_per_sequence = 2048};
  const ControlCapacity many(step, 129280);
  EXPECT_EQ(many.history_entries, 32 * 129280);
  EXPECT_EQ(many.entries, 32 * 129280 + 2080 * (63 + 128));
  EXPECT_LT(many.entries * static_cast<int64_t>(sizeof(kernels::LogitEntry)), 75 << 20);
  step.max_sequences = 3;
  step.max_pages_per_sequence = 10;
  EXPECT_EQ(ControlCapacity(step, 129280).history_entries, 3 * (10 * 64 + 1024));
}

TEST(ControlListsTest, ANodeCountsItsAncestorsBelowTheRootAndItself) {
  const std::vector<kernels::LogitEntry> history = {
      {.token = T(10), .output_count = 1, .occurred = 1},
      {.token = T(20), .bias = 3, .output_count = 2, .occurred = 1}};
  const StepControls controls{
      .penalties = {.repetition = 2, .entries = {}}, .history = history, .counts_nodes = true};
  const Lists lists({Tree(nullptr), Tree(&controls)}, {});
  EXPECT_EQ(lists.row[0].sequence, -1);
  EXPECT_EQ(lists.row[5].sequence, 1);
  EXPECT_EQ(lists.sequence[1].repetition, 2);
  EXPECT_EQ(lists.Entries(lists.sequence[1].entries), (Strings{"10:1", "20:2"}));
  EXPECT_EQ(lists.Entries(lists.row[5].entries), Strings{}) << "the root is committed";
  EXPECT_EQ(lists.Entries(lists.row[6].entries), (Strings{"20:3"}));
  EXPECT_EQ(lists.Entries(lists.row[7].entries), (Strings{"30:1"}));
  EXPECT_EQ(lists.Entries(lists.row[8].entries), (Strings{"11:1", "20:3"}));
  EXPECT_EQ(lists.Entries(lists.row[9].entries), (Strings{"11:1", "20:4"}));
  EXPECT_EQ(lists.entry(lists.row[9].entries.first + 1).bias, 3) << "the bias comes along";
  EXPECT_EQ(lists.entry(lists.row[9].entries.first).occurred, 1);
}

TEST(ControlListsTest, StopIdsAreForbiddenForThePositionsBefore) {
  const std::vector<TokenId> stops = {T(11), T(64)};
  StepControls controls{.counts_nodes = true, .stop_ids = stops, .stops_from = 9};
  const Lists lists({Tree(&controls)}, {});  // the root at 6 chooses for 7, nodes 1 and 2 for 8, 3 for 9
  EXPECT_EQ(lists.Entries(lists.row[0].entries), (Strings{"11:0!", "64:0!"}));
  EXPECT_EQ(lists.Entries(lists.row[2].entries), (Strings{"11:0!", "30:1", "64:0!"}));
  EXPECT_EQ(lists.Entries(lists.row[3].entries), (Strings{"11:1", "20:1"}));
}

TEST(ControlListsTest, AHistoryThatCountsNoNodesAddsNothing) {
  const std::vector<kernels::LogitEntry> history = {{.token = T(20), .bias = 3}};
  const StepControls controls{.history = history};
  const Lists lists({Tree(&controls)}, {});
  for (int row = 0; row < 5; ++row) {
    EXPECT_EQ(lists.row[static_cast<size_t>(row)].entries.count, 0);
  }
}

// Says of each node which of two masks it has, or none.
struct Chosen : NodeMasks {
  explicit Chosen(std::vector<int> which) : which(std::move(which)) {}
  void Commit(std::span<const TokenId>) override {}
  void OfTree(std::span<const TokenId> token, std::span<const int32_t>,
              std::span<const uint32_t*> mask) override {
    for (size_t i = 0; i < token.size(); ++i) {
      mask[i] = which[i] < 0 ? nullptr : words[which[i]];
    }
  }
  std::vector<int> which;
  uint32_t words[2][3] = {{0xf, 0x3, 1}, {0xc, 0x1, 0}};
};

TEST(ControlListsTest, EqualMasksAreThereOnceAndSeveralHoldTogether) {
  Chosen first({0, 0, -1, 1, 0}), second({-1, 1, -1, -1, -1});
  const std::vector<NodeMasks*> masks = {&first, &second};
  const StepControls controls{.masks = masks};
  const Lists lists({Tree(&controls)}, {});
  EXPECT_EQ(lists.sizes.masks, 3);
  EXPECT_EQ(lists.row[2].mask, -1);
  EXPECT_EQ(lists.row[4].mask, lists.row[0].mask);
  EXPECT_NE(lists.row[1].mask, lists.row[0].mask);
  EXPECT_EQ(lists.MaskWord(lists.row[0].mask, 0), 0xfu);
  EXPECT_EQ(lists.MaskWord(lists.row[1].mask, 0), 0xcu);
  EXPECT_EQ(lists.MaskWord(lists.row[1].mask, 1), 0x1u);
  EXPECT_EQ(lists.MaskWord(lists.row[3].mask, 2), 0u);
}

TEST(ControlListsTest, TopListsAndScoredTokensHaveTheirRows) {
  const StepControls controls{.top_log_probs = 7};
  const std::vector<TokenId> tokens = {T(1), T(2), T(3)}, next = {T(2), T(3), T(-1)};
  const StepChunk scored{.page_table = kPages, .first_position = 0, .tokens = tokens, .next = next};
  const StepChunk other{.page_table = kPages, .first_position = 0, .tokens = tokens};
  EXPECT_TRUE(IsControlled({}, std::vector{other, scored}));
  EXPECT_FALSE(IsControlled(std::vector{Tree(nullptr)}, std::vector{other}));
  const Lists lists({Tree(&controls)}, {scored, other});
  EXPECT_EQ(lists.top_count[4], 7);
  EXPECT_EQ(lists.top[4].k, 7);
  EXPECT_EQ(lists.top[4].depths, 1);
  EXPECT_EQ(lists.forced[4], T(-1));
  EXPECT_EQ(lists.top_count[5], 0);
  EXPECT_EQ(lists.top[5].k, 0);
  EXPECT_EQ(lists.row[5].sequence, -1);
  EXPECT_EQ(lists.forced[5], T(2));
  EXPECT_EQ(lists.forced[6], T(3));
  EXPECT_EQ(lists.forced[7], T(-1));
  EXPECT_EQ(lists.forced[8], T(99)) << "no row with logits";
}

}  // namespace
}  // namespace arborist::verifier
