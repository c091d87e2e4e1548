#include "verifier/step_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/step_input.h"

namespace arborist::verifier {
namespace {

using ::testing::ElementsAre;

constexpr StepCapacity kCapacity{
    .max_rows = 700, .max_logits_rows = 300, .max_sequences = 8, .max_pages_per_sequence = 5};

TEST(StepSizesTest, RowsGoUpToTheNextOfFewSizes) {
  const StepSizes sizes(kCapacity);
  const auto rows = [&](int count) { return sizes.For({.rows = count}).rows; };
  EXPECT_EQ(rows(1), 1);
  EXPECT_EQ(rows(3), 4);
  EXPECT_EQ(rows(5), 9);
  EXPECT_EQ(rows(65), 65);
  EXPECT_EQ(rows(66), 129);
  EXPECT_EQ(rows(257), 300);
  EXPECT_EQ(rows(301), 512);
  EXPECT_EQ(rows(513), 700);
}

TEST(StepSizesTest, StepsOfTreesAloneComeInFinerSizes) {
  const StepSizes sizes({.max_rows = 2080, .max_logits_rows = 2080, .max_sequences = 32});
  const auto size = [&](int rows, int logits_rows) {
    return sizes.For({.rows = rows, .logits_rows = logits_rows, .sequences = 32});
  };
  EXPECT_EQ(size(144, 144).rows, 192);
  EXPECT_EQ(size(144, 144).logits_rows, 192);
  EXPECT_EQ(size(272, 272).rows, 320);
  EXPECT_EQ(size(272, 271).rows, 512);
  EXPECT_EQ(size(272, 271).logits_rows, 512);
  EXPECT_EQ(size(1040, 1040).rows, 1280);
}

TEST(StepSizesTest, SequencesAndTreesAreAtMostTheRows) {
  const StepSizes sizes(kCapacity);
  EXPECT_EQ(sizes.For({.rows = 3, .logits_rows = 2, .sequences = 2}),
            (StepSize{.rows = 4, .logits_rows = 2, .sequences = 4, .trees = 2, .pages_per_sequence = 5}));
  EXPECT_EQ(sizes.For({.rows = 100, .sequences = 1}),
            (StepSize{.rows = 129, .logits_rows = 0, .sequences = 8, .trees = 0, .pages_per_sequence = 5}));
}

TEST(StepSizesTest, PageTablesOfTreesAloneAreNoLargerThanWhatMakesADifferenceToAttention) {
  const StepSizes sizes(
      {.max_rows = 2080, .max_logits_rows = 2080, .max_sequences = 64, .max_pages_per_sequence = 512});
  const auto table = [&](int rows, int sequences, int pages) {
    const StepSize size =
        sizes.For({.rows = rows, .logits_rows = rows, .sequences = sequences, .pages = pages});
    EXPECT_EQ(size.trees, size.sequences);
    return std::pair(size.sequences, size.pages_per_sequence);
  };
  EXPECT_EQ(table(1, 1, 0), std::pair(1, 8));
  EXPECT_EQ(table(1, 1, 8), std::pair(1, 8));
  EXPECT_EQ(table(1, 1, 9), std::pair(1, 32));
  EXPECT_EQ(table(9, 1, 128), std::pair(1, 128));
  EXPECT_EQ(table(9, 1, 129), std::pair(1, 512));
  EXPECT_EQ(table(9, 2, 33), std::pair(9, 128));
  EXPECT_EQ(table(33, 1, 33), std::pair(1, 512));
  EXPECT_EQ(table(65, 5, 8), std::pair(8, 8));
  EXPECT_EQ(table(65, 9, 9), std::pair(64, 512));
  EXPECT_EQ(table(256, 1, 1), std::pair(1, 512));
  EXPECT_EQ(table(257, 2, 1), std::pair(64, 512));
}

TEST(StepSizesTest, AllAreTheSizesOfEveryStepThereIs) {
  for (const StepCapacity& capacity :
       {kCapacity,
        StepCapacity{
            .max_rows = 300, .max_logits_rows = 300, .max_sequences = 20, .max_pages_per_sequence = 140}}) {
    const StepSizes sizes(capacity);
    const std::vector<StepSize> list = sizes.All();
    const std::set<StepSize> all(list.begin(), list.end());
    EXPECT_EQ(all.size(), list.size());
    for (int rows = 1; rows <= capacity.max_rows; ++rows) {
      for (int logits_rows = 0; logits_rows <= std::min(rows, capacity.max_logits_rows); ++logits_rows) {
        for (const int sequences : {1, 2, 7, 8, 9, 20}) {
          for (const int pages : {0, 5, 8, 9, 33, 129, 140}) {
            if (sequences > std::min(rows, capacity.max_sequences) ||
                pages > capacity.max_pages_per_sequence) {
              continue;
            }
            const StepSize size =
                sizes.For({.rows = rows, .logits_rows = logits_rows, .sequences = sequences, .pages = pages});
            ASSERT_TRUE(all.contains(size)) << rows << ", " << logits_rows << ", " << sequences;
            ASSERT_TRUE(size.sequences >= sequences && size.pages_per_sequence >= pages)
                << rows << ", " << logits_rows << ", " << sequences << ", " << pages;
          }
        }
      }
    }
  }
}

TEST(StepInputTest, PaddingBehindTheBatchIsHarmless) {
  ThreadPool threads(1);
  const auto device = OpenCpuDevice(threads);
  absl::StatusOr<StepInput> input = StepInput::Create(kCapacity, *device);
  ASSERT_TRUE(input.ok()) << input.status();
  StepBatch batch;
  batch.Reserve(4, 3, 5);
  batch.rows = 3;
  batch.sequences = 2;
  batch.token = {TokenId{7}, TokenId{8}, TokenId{9}, TokenId{99}};
  batch.position = {20, 21, 5, 99};
  batch.sequence = {0, 0, 1, 99};
  batch.parent = {-1, 0, -1, 99};
  batch.write_slot = {100, 101, 200, 99};
  batch.tail_count = {21, 22, 6, 99};
  batch.tail_slot[2 * kernels::kMaxTailKeys + 3] = 33;
  batch.first_row = {0, 2, 3, 99};
  batch.page_table[5] = 4;
  batch.logits_row = {0, 1};
  const StepSize size = StepSizes(kCapacity).For(ContentsOf(batch));
  const std::vector<kernels::SamplingParams> sampling = {{.temperature = 0.5f}};
  input->Pack(size, batch, sampling);
  ASSERT_TRUE(input->EnqueueCopy(size).ok());

  const StepArrays to = input->DeviceArrays(size);
  const auto ints = [](const int32_t* values, int count) {
    return std::vector<int32_t>(values, values + count);
  };
  EXPECT_EQ(std::vector<TokenId>(to.token, to.token + 4),
            (std::vector<TokenId>{TokenId{7}, TokenId{8}, TokenId{9}, TokenId{0}}));
  EXPECT_THAT(ints(to.position, 4), ElementsAre(20, 21, 5, 0));
  EXPECT_THAT(ints(to.sequence, 4), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(ints(to.write_slot, 4), ElementsAre(100, 101, 200, -1));
  EXPECT_THAT(ints(to.tail_count, 4), ElementsAre(21, 22, 6, 0));
  EXPECT_EQ(to.tail_slot[2 * kernels::kMaxTailKeys + 3], 33);
  EXPECT_EQ(to.page_table[5], 4);
  EXPECT_THAT(ints(to.logits_row, 2), ElementsAre(0, 1));
  EXPECT_THAT(ints(to.noise_position, 2), ElementsAre(21, 22));
  EXPECT_THAT(ints(to.params_index, 2), ElementsAre(0, 0));
  EXPECT_THAT(ints(to.tree_begin, 3), ElementsAre(0, 2, 2));
  EXPECT_EQ(*to.live_rows, 3);
  EXPECT_EQ(to.params[0].temperature, 0.5f);
  EXPECT_EQ(to.params[3].temperature, 0);

  const StepBatchView view = input->View(size);
  EXPECT_EQ(view.rows, 4);
  EXPECT_EQ(view.logits_rows, 2);
  EXPECT_EQ(view.token, to.token);
  EXPECT_EQ(view.live_rows, to.live_rows);
}

TEST(StepInputTest, ASmallerPageTableHasTheFirstPagesOfEverySequence) {
  constexpr StepCapacity kLong{
      .max_rows = 9, .max_logits_rows = 9, .max_sequences = 2, .max_pages_per_sequence = 100};
  ThreadPool threads(1);
  const auto device = OpenCpuDevice(threads);
  absl::StatusOr<StepInput> input = StepInput::Create(kLong, *device);
  ASSERT_TRUE(input.ok()) << input.status();
  StepBatch batch;
  batch.Reserve(9, 2, 100);
  batch.rows = 3;
  batch.sequences = 2;
  batch.prefix_blocks = {0, 7, 8, 99};  // the last is no row of the batch
  batch.first_row = {0, 1, 3};
  batch.logits_row = {0, 1, 2};
  for (int page = 0; page < 100; ++page) {
    batch.page_table[page] = page;
    batch.page_table[100 + page] = 1000 + page;
  }
  const StepContents contents = ContentsOf(batch);
  EXPECT_EQ(contents.pages, 8);
  const StepSize size = StepSizes(kLong).For(contents);
  ASSERT_EQ(size.pages_per_sequence, 8);
  const std::vector<kernels::SamplingParams> sampling(2);
  input->Pack(size, batch, sampling);
  ASSERT_TRUE(input->EnqueueCopy(size).ok());
  const int32_t* table = input->View(size).page_table;
  EXPECT_EQ(input->View(size).pages_per_sequence, 8);
  for (int page = 0; page < 8; ++page) {
    EXPECT_EQ(table[page], page);
    EXPECT_EQ(table[8 + page], 1000 + page);
  }
}

}  // namespace
}  // namespace arborist::verifier
