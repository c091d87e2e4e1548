// A device that fails is told apart from a call that does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/device/device.h"
#include "drafter/testing/small_pair.h"

namespace arborist::drafter {
namespace {

// The CPU, until it is told to fail like a GPU after an illegal access: whatever waits for it is an error.
class FailingDevice : public Device {
 public:
  explicit FailingDevice(ThreadPool& threads) : cpu_(OpenCpuDevice(threads)) {}
  void Fail() { failed_ = true; }

  DeviceKind kind() const override { return cpu_->kind(); }
  std::string name() const override { return cpu_->name(); }
  std::string architecture() const override { return cpu_->architecture(); }
  StreamView stream() const override { return cpu_->stream(); }
  size_t bytes_left() const override { return cpu_->bytes_left(); }
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view what) override {
    return cpu_->Allocate(bytes, what);
  }
  absl::StatusOr<DeviceMemory> AllocateHost(size_t bytes, absl::string_view what) override {
    return cpu_->AllocateHost(bytes, what);
  }
  absl::Status Copy(void* to, const void* from, size_t bytes) override { return cpu_->Copy(to, from, bytes); }
  absl::Status Synchronize() override {
    return failed_ ? absl::InternalError("device work: an illegal memory access") : absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<RecordedWork>> Record(absl::FunctionRef<absl::Status()> work,
                                                       absl::string_view what) override {
    return cpu_->Record(work, what);
  }

 private:
  std::unique_ptr<Device> cpu_;
  bool failed_ = false;
};

class DeviceFailureTest : public ::testing::Test {
 protected:
  const testing::SmallPair pair_;
  FailingDevice device_{pair_.threads()};
  std::vector<absl::Status> reports_;
  const std::unique_ptr<DFlashProposer> proposer_ = pair_.NewProposer(
      {.on_device_failure = [this](const absl::Status& status) { reports_.push_back(status); }},
      kernels::CpuKernels(), device_);
};

TEST_F(DeviceFailureTest, AFailedDeviceIsReportedWithItsReasonByTheRoundThatNotices) {
  const auto context = pair_.Context(20, *proposer_);
  ASSERT_TRUE(context->Propose({.nodes = 4}).ok());
  device_.Fail();
  const absl::Status status = context->Propose({.nodes = 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0], status);
}

TEST_F(DeviceFailureTest, SoItIsByFeaturesThatAreWritten) {
  const auto context = *proposer_->NewContext();
  ASSERT_TRUE(context->AppendTokens(0, pair_.Tokens(0, 10)).ok());
  device_.Fail();
  EXPECT_EQ(context->AppendFeatures(0, 9, pair_.Features(0, 9)).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(DeviceFailureTest, ABadCallIsNoFailureOfTheDevice) {
  const auto context = pair_.Context(20, *proposer_);
  EXPECT_FALSE(context->Propose({.nodes = 256}).ok());
  EXPECT_FALSE(context->AppendFeatures(19, 1, pair_.Features(19, 1)).ok());
  EXPECT_TRUE(context->Propose({.nodes = 4}).ok());
  EXPECT_TRUE(reports_.empty());
}

}  // namespace
}  // namespace arborist::drafter
