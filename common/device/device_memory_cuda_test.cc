// How a GPU says no: in memory, at a launch, inside a kernel. Skipped without one. Needs it alone: what is
// free is measured, and nearly all of it taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "common/device/device.h"

namespace arborist {
namespace {

using ::testing::HasSubstr;

// Memory, recorded work that fills it, and a file that makes the device fail.
class CudaDeviceFailureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = OpenCudaDevice({}); !device.ok()) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
    std::remove(trigger_.c_str());
  }
  void TearDown() override { std::remove(trigger_.c_str()); }

  // What the next start says after the fault, and what every wait says from then on.
  void Fail(DeviceFault::Kind kind, absl::Status& started, absl::Status& waited) {
    const auto device =
        OpenCudaDevice({}, {.kind = kind, .allocation = 1, .trigger_path = trigger_, .memory = "rows"});
    ASSERT_TRUE(device.ok()) << device.status();
    const auto host = (*device)->AllocateHost(4096, "host");
    const auto memory = (*device)->Allocate(4096, "rows");
    ASSERT_TRUE(host.ok() && memory.ok());
    const auto other = (*device)->Allocate(4096, "untouched");
    ASSERT_TRUE(other.ok());
    const auto work = (*device)->Record(
        [&] {
          absl::Status status = (*device)->Copy(other->data(), host->data(), 4096);
          status.Update((*device)->Mark("the middle"));
          status.Update((*device)->Copy(memory->data(), host->data(), 4096));
          status.Update((*device)->Mark("the end"));
          status.Update((*device)->Copy(other->data(), host->data(), 4096));
          return status;
        },
        "a fill");
    ASSERT_TRUE(work.ok()) << work.status();
    ASSERT_TRUE((*work)->Start().ok());
    ASSERT_TRUE((*device)->Synchronize().ok());
    std::ofstream(trigger_) << "now\n";
    started = (*work)->Start();
    waited = (*device)->Synchronize();
    EXPECT_EQ((*device)->Synchronize(), waited);
  }

  const std::string trigger_ = ::testing::TempDir() + "/device_test_trigger" + std::to_string(getpid());
};

TEST_F(CudaDeviceFailureTest, AllocationThatCudaRefusesNamesWhatWasWantedAndWhatIsFree) {
  const auto device = OpenCudaDevice({}, {.kind = DeviceFault::Kind::kOutOfMemory, .allocation = 2});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE((*device)->Allocate(16, "weights").ok());
  const auto refused = (*device)->Allocate(17, "KV cache");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::MatchesRegex("KV cache: 17 bytes wanted, [1-9][0-9]* free on the GPU: out of memory "
                                      "\\(cudaErrorMemoryAllocation\\)"));
  EXPECT_TRUE((*device)->Allocate(16, "scratch").ok());  // the device goes on
  EXPECT_TRUE((*device)->Synchronize().ok());
}

TEST_F(CudaDeviceFailureTest, MemoryThatAnotherProcessTookSinceIsRefusedLikeThat) {
  const auto first = OpenCudaDevice({});  // all that is free
  const auto second = OpenCudaDevice({});
  ASSERT_TRUE(first.ok() && second.ok());
  const size_t most = (*second)->bytes_left() / 10 * 9;
  const auto taken = (*second)->Allocate(most, "the other's");
  ASSERT_TRUE(taken.ok()) << taken.status();
  const auto refused = (*first)->Allocate(most, "weights");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("free on the GPU: out of memory"));
}

TEST_F(CudaDeviceFailureTest, FractionsThatFitTogetherAreBothGivenWholeAndOthersAreRefusedAtTheStart) {
  const auto first = OpenCudaDevice({.memory_fraction = 0.3});
  ASSERT_TRUE(first.ok()) << first.status();
  const size_t share = (*first)->bytes_left();
  const auto weights = (*first)->Allocate(share, "weights");
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ((*first)->Allocate(1, "one more").status().code(), absl::StatusCode::kResourceExhausted);

  const auto second = OpenCudaDevice({.memory_fraction = 0.5});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NEAR(static_cast<double>((*second)->bytes_left()) / static_cast<double>(share), 5.0 / 3, 0.01);
  EXPECT_TRUE((*second)->Allocate((*second)->bytes_left(), "weights").ok());

  const auto third = OpenCudaDevice({.memory_fraction = 0.75});  // 0.3 are taken
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("memory_fraction=0.75 is"));
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("the bytes free on GPU 0"));
}

TEST_F(CudaDeviceFailureTest, WhatTheDriverTakesForRecordedWorkIsMeasuredAndTheFirstStartTakesNoMore) {
  const auto device = OpenCudaDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto host = (*device)->AllocateHost(4096, "host");
  const auto memory = (*device)->Allocate(4096, "rows");
  std::vector<std::unique_ptr<RecordedWork>> recorded;
  ASSERT_TRUE((*device)
                  ->Measure(
                      [&]() -> absl::Status {
                        for (int i = 0; i < 64; ++i) {
                          auto work = (*device)->Record(
                              [&]() -> absl::Status {
                                for (int j = 0; j < 100; ++j) {
                                  const absl::Status status =
                                      (*device)->Copy(memory->data(), host->data(), 4096);
                                  if (!status.ok()) {
                                    return status;
                                  }
                                }
                                return absl::OkStatus();
                              },
                              "a hundred fills");
                          if (!work.ok()) {
                            return work.status();
                          }
                          recorded.push_back(*std::move(work));
                        }
                        return (*device)->Synchronize();
                      },
                      "64 recordings")
                  .ok());
  EXPECT_EQ((*device)->allocations().back().what, "64 recordings, measured");
  EXPECT_LT((*device)->allocations().back().bytes, 256u << 20);
  EXPECT_THAT(MemoryTable(**device), HasSubstr("CUDA context and other processes, before"));
  const size_t left = (*device)->bytes_left();
  for (const auto& work : recorded) {
    ASSERT_TRUE(work->Start().ok());
  }
  ASSERT_TRUE((*device)->Synchronize().ok());
  EXPECT_GE((*device)->bytes_left(), left);
}

TEST_F(CudaDeviceFailureTest, ARefusedLaunchNamesItsKernelAndIsTheLastWord) {
  absl::Status started, waited;
  Fail(DeviceFault::Kind::kLaunchError, started, waited);
  EXPECT_EQ(started.message(), "planted_fault: invalid argument (cudaErrorInvalidValue)");
  EXPECT_EQ(waited, started);
}

// Last: nothing computes in this process afterwards.
TEST_F(CudaDeviceFailureTest, MemoryTakenFromAKernelIsAnIllegalAccessInItsPartOfTheRecordedWork) {
  absl::Status started, waited;
  Fail(DeviceFault::Kind::kIllegalAccess, started, waited);
  EXPECT_TRUE(started.ok()) << started;
  EXPECT_EQ(waited.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(waited.message(),
            "device work in the middle (one of mark, small_copy): an illegal memory access was encountered "
            "(cudaErrorIllegalAddress)");
}

}  // namespace
}  // namespace arborist
