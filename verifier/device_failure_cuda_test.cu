// What becomes of a verifier whose GPU fails. A program of its own, since after an illegal access nothing
// else runs in the process. Skipped without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "verifier/testing/control_cases.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/recording_sink.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

__global__ void WriteToNowhere(int* nowhere) { *nowhere = 1; }

class DeviceFailureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = OpenCudaDevice({}); !device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    options_.open_device = [](ThreadPool&) { return *OpenCudaDevice({}); };
    options_.make_model = [](const ModelOptions& options, Device& device) {
      return LoadGolden("tied", options, device);
    };
  }

  TestVerifierOptions options_;
};

TEST_F(DeviceFailureTest, ALaunchErrorAtTheStartNamesStepAndKernel) {
  kernels::KernelSet broken = kernels::KernelsFor(DeviceKind::kCuda);
  broken.tree_accept = [](const kernels::TreeAcceptArgs&, StreamView) {
    return absl::InternalError("tree_accept: too many resources requested for launch");
  };
  const auto device = OpenCudaDevice({});
  ModelOptions model;
  model.max_rows = options_.verifier.max_rows;
  model.max_logits_rows = options_.verifier.max_logits_rows;
  model.max_context = options_.verifier.max_context;
  const auto verifier =
      CreateVerifier(options_.verifier, LoadGolden("tied", model, **device), std::nullopt, broken, **device);
  EXPECT_THAT(
      std::string(verifier.status().message()),
      ::testing::MatchesRegex("verify step of [0-9]+ rows, [1-9][0-9]* with logits: tree_accept: too many "
                              "resources requested for launch"));
}

TEST_F(DeviceFailureTest, MoreThanTheShareIsRefusedAtTheStart) {
  const auto device = OpenCudaDevice({.index = 0, .memory_limit = 64 << 20});
  ModelOptions model;
  model.max_rows = options_.verifier.max_rows;
  model.max_logits_rows = options_.verifier.max_logits_rows;
  model.max_context = options_.verifier.max_context;
  options_.verifier.pages = 1 << 20;
  const auto verifier = CreateVerifier(options_.verifier, LoadGolden("tied", model, **device), std::nullopt,
                                       kernels::KernelsFor(DeviceKind::kCuda), **device);
  EXPECT_EQ(verifier.status().code(), absl::StatusCode::kResourceExhausted) << verifier.status();
  EXPECT_EQ(verifier.status().message().find("KV cache, 1048576 pages"), 0u) << verifier.status();
}

TEST_F(DeviceFailureTest, NoStepTakesMemoryOfTheGpuAfterTheStart) {
  size_t before = 0, after = 0;
  options_.verifier.before_step = [&](auto, auto, const KvPlanes&, Device& device) {
    after = device.bytes_left();
    before = before == 0 ? after : before;
  };
  TestVerifier verifier(options_);
  for (const int prompt : {2, 3, 5, 11, 20, 40, 70, 100}) {  // prompt rows beside trees, in many sizes
    const auto name = [&](const char* what) { return what + std::to_string(prompt); };
    RecordingSink beside;
    const auto handle = verifier->Open(MakeOpen(name("beside"), RandomTokens(prompt, 64, 1), 20, 8), &beside);
    ASSERT_TRUE(handle.ok()) << handle.status();
    OpenArgs args = MakeOpen(name("decodes"), RandomTokens(prompt, 64, 2), 20, 8);
    const Decoded decoded = DecodePlain(*verifier, args);
    EXPECT_TRUE(decoded.closed.ok()) << decoded.closed;
    args.controls = ControlCases(64, 3).back().controls;
    args.key.request_id = name("controlled");
    const Decoded controlled = DecodePlain(*verifier, args);
    EXPECT_TRUE(controlled.closed.ok()) << controlled.closed;
    verifier->Cancel(*handle);
    beside.WaitClosed().IgnoreError();
  }
  verifier.Destroy();
  EXPECT_GT(before, 0u);
  EXPECT_EQ(after, before);
}

// Last: nothing computes in this process afterwards.
TEST_F(DeviceFailureTest, AnIllegalAccessEndsEverySequenceAndIsToldOnce) {
  std::atomic<int> steps{0};
  options_.verifier.before_step = [&](auto, auto, const KvPlanes&, Device& device) {
    if (++steps == 5) {
      WriteToNowhere<<<1, 1, 0, static_cast<cudaStream_t>(device.stream().cuda_stream)>>>(nullptr);
    }
  };
  std::atomic<int> told{0};
  options_.verifier.on_device_failure = [&](const absl::Status& status) {
    EXPECT_NE(status.message().find("verify step of 1 rows"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("illegal"), absl::string_view::npos) << status;
    ++told;
  };
  TestVerifier verifier(options_);
  RecordingSink waiting;
  ASSERT_TRUE(verifier->Open(MakeOpen("waits", RandomTokens(9, 64, 1), 20, 8), &waiting).ok());
  waiting.WaitReady();
  const Decoded decoded = DecodePlain(*verifier, MakeOpen("decodes", RandomTokens(9, 64, 2), 20, 8));
  EXPECT_EQ(decoded.closed.code(), absl::StatusCode::kInternal) << decoded.closed;
  EXPECT_EQ(waiting.WaitClosed().code(), absl::StatusCode::kInternal);
  RecordingSink late;
  const auto refused = verifier->Open(MakeOpen("late", RandomTokens(9, 64, 3), 20, 8), &late);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
  EXPECT_EQ(verifier->device_status(), refused.status());
  verifier.Destroy();
  EXPECT_EQ(told.load(), 1);
}

}  // namespace
}  // namespace arborist::verifier
