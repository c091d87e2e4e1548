#include "verifier/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "verifier/testing/fake_model.h"
#include "verifier/testing/host_planes.h"
#include "verifier/testing/wrapped_model.h"

namespace arborist::verifier {
namespace {

using testing::HasSubstr;

constexpr StepCapacity kCapacity{
    .max_rows = 512, .max_logits_rows = 64, .max_sequences = 4, .max_pages_per_sequence = 16};

class SelfTestTest : public testing::Test {
 protected:
  absl::Status Run(WrappedModel::Before before, WrappedModel::After after,
                   const StepCapacity& capacity = kCapacity, int max_context = 1000) {
    WrappedModel model(
        std::make_unique<FakeModel>(FakeModelOptions{
            .taps = 1, .max_rows = capacity.max_rows, .max_logits_rows = capacity.max_logits_rows}),
        std::move(before), std::move(after));
    const absl::Status status = RunSelfTest(capacity, max_context, 5, model, cache_, *device_);
    EXPECT_EQ(cache_.pool().free_pages(), cache_.pool().total_pages());
    return status;
  }

  void ExpectFailure(const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_ = OpenCpuDevice(pool_);
  KvCache cache_{HostPlanes({.layers = 2, .pages = 32, .latent_row = 5}), 16, 1};
};

TEST_F(SelfTestTest, AnExactModelPasses) { EXPECT_TRUE(Run(nullptr, nullptr).ok()); }

TEST_F(SelfTestTest, ItRunsEveryRowCountAloneAndMixed) {
  std::vector<int> rows;
  ASSERT_TRUE(Run(
                  [&](StepBatch& batch, KvPlanes&) {
                    rows.push_back(batch.rows);
                    return absl::OkStatus();
                  },
                  nullptr)
                  .ok());
  for (const int count : {1, 2, 7, 64, 65, 512}) {
    EXPECT_THAT(rows, testing::Contains(count));
  }
}

TEST_F(SelfTestTest, TheLargestStepsOfPromptsAndOfTreesRunTooWhereASequenceIsShorter) {
  std::vector<std::pair<int, int>> steps;  // rows, those with logits
  ASSERT_TRUE(Run(
                  [&](StepBatch& batch, KvPlanes&) {
                    steps.emplace_back(batch.rows, batch.logits_row.size());
                    return absl::OkStatus();
                  },
                  nullptr,
                  {.max_rows = 1500, .max_logits_rows = 700, .max_sequences = 2, .max_pages_per_sequence = 6},
                  350)
                  .ok());
  EXPECT_THAT(steps, testing::IsSupersetOf(
                         {std::pair(512, 1), std::pair(1500, 1), std::pair(65, 65), std::pair(700, 700)}));
}

TEST_F(SelfTestTest, SmallCapacitiesTestWhatTheyCan) {
  EXPECT_TRUE(Run(nullptr, nullptr,
                  {.max_rows = 9, .max_logits_rows = 1, .max_sequences = 1, .max_pages_per_sequence = 1}, 20)
                  .ok());
  EXPECT_TRUE(Run(nullptr, nullptr,
                  {.max_rows = 2, .max_logits_rows = 1, .max_sequences = 1, .max_pages_per_sequence = 1}, 2)
                  .ok());
}

TEST_F(SelfTestTest, ALogitBitThatDependsOnTheRowCountIsFound) {
  ExpectFailure(Run(nullptr,
                    [](const StepBatch& batch, KvPlanes&, const ForwardResult& result) {
                      if (batch.rows == 65 && result.logits.rows > 0) {
                        auto* logits = const_cast<float*>(result.logits.row(0));
                        logits[3] = std::nextafter(logits[3], 100.0f);
                      }
                    }),
                "logits of position 130 changed in a step of 65 rows");
}

TEST_F(SelfTestTest, ALogitBitThatDependsOnTheRowsWithLogitsIsFound) {
  ExpectFailure(Run(nullptr,
                    [](const StepBatch&, KvPlanes&, const ForwardResult& result) {
                      for (int64_t row = 0; result.logits.rows == 64 && row < 64; ++row) {
                        auto* logits = const_cast<float*>(result.logits.row(row));
                        logits[3] = std::nextafter(logits[3], 100.0f);
                      }
                    }),
                "logits of position 130 changed in a step of trees of 64 rows");
}

TEST_F(SelfTestTest, AKvBitThatDependsOnTheChunkIsFound) {
  ExpectFailure(Run(nullptr,
                    [](const StepBatch& batch, KvPlanes& planes, const ForwardResult&) {
                      if (batch.rows == 7 && batch.sequences == 1) {
                        float& value =
                            static_cast<float*>(planes.latent(1))[batch.write_slot[6] * planes.latent_row()];
                        value = std::nextafter(value, 100.0f);
                      }
                    }),
                "K/V of position 130 changed at the end of a chunk of 7 rows");
}

TEST_F(SelfTestTest, ATapBitThatDependsOnNeighboursIsFound) {
  ExpectFailure(Run(nullptr,
                    [](const StepBatch& batch, KvPlanes&, const ForwardResult& result) {
                      if (batch.sequences > 1) {
                        for (int row = 0; row < batch.rows; ++row) {
                          const_cast<float*>(result.taps.row(row))[0] += 1;
                        }
                      }
                    }),
                "taps of position 130 changed in a step of 2 rows");
}

TEST_F(SelfTestTest, AnErrorOfTheModelIsReturned) {
  const absl::Status status =
      Run([](StepBatch&, KvPlanes&) { return absl::InternalError("injected"); }, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace arborist::verifier
