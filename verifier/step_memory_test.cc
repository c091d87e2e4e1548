#include "verifier/step_memory.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "verifier/device_step_runner.h"
#include "verifier/feature_projection.h"
#include "verifier/testing/fake_model.h"
#include "verifier/testing/host_planes.h"

namespace arborist::verifier {
namespace {

// Says that it is a GPU and sums up what is allocated on it; it computes nothing.
class CountingGpu final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return "counting"; }
  std::string architecture() const override { return "none"; }
  StreamView stream() const override { return cpu_->stream(); }
  size_t bytes_left() const override { return 0; }
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view what) override {
    allocated += static_cast<int64_t>(bytes);
    return cpu_->Allocate(bytes, what);
  }
  absl::StatusOr<DeviceMemory> AllocateHost(size_t bytes, absl::string_view what) override {
    return cpu_->AllocateHost(bytes, what);
  }
  absl::Status Copy(void* to, const void* from, size_t bytes) override { return cpu_->Copy(to, from, bytes); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<RecordedWork>> Record(absl::FunctionRef<absl::Status()>,
                                                       absl::string_view) override {
    return absl::UnimplementedError("nothing is recorded");
  }

  int64_t allocated = 0;

 private:
  ThreadPool threads_{1};
  std::unique_ptr<Device> cpu_ = OpenCpuDevice(threads_);
};

TEST(StepMemoryTest, ARunnerAllocatesWhatIsSaidAndNothingElse) {
  for (const StepCapacity& capacity :
       {StepCapacity{
            .max_rows = 160, .max_logits_rows = 130, .max_sequences = 8, .max_pages_per_sequence = 17},
        StepCapacity{
            .max_rows = 301, .max_logits_rows = 33, .max_sequences = 70, .max_pages_per_sequence = 3}}) {
    FakeModel model(
        {.vocabulary = 71, .max_rows = capacity.max_rows, .max_logits_rows = capacity.max_logits_rows});
    KvCache cache(HostPlanes({.layers = 2, .pages = 4, .latent_row = 5, .feature_row = 8}), 16, 1);
    const std::vector<float> weight(8 * 16);
    Projection projection;
    projection.fc = {.data = weight.data(), .dtype = DType::kF32, .rows = 8, .columns = 16};
    projection.norm.resize(8);
    CountingGpu gpu;
    const auto runner = DeviceStepRunner::Create(capacity, &model, &cache, nullptr,
                                                 kernels::KernelsFor(DeviceKind::kCpu), gpu);
    ASSERT_TRUE(runner.ok()) << runner.status();
    EXPECT_EQ(gpu.allocated, StepMemoryFor(capacity, 71, 0).total());
    gpu.allocated = 0;
    const int64_t projecting_bytes = FeatureProjection::BytesOnGpu(projection, capacity.max_rows);
    auto features = FeatureProjection::Create(std::move(projection), capacity.max_rows, gpu);
    ASSERT_TRUE(features.ok()) << features.status();
    EXPECT_EQ(gpu.allocated, projecting_bytes);
    gpu.allocated = 0;
    const auto projecting = DeviceStepRunner::Create(capacity, &model, &cache, &*features,
                                                     kernels::KernelsFor(DeviceKind::kCpu), gpu);
    ASSERT_TRUE(projecting.ok()) << projecting.status();
    EXPECT_EQ(gpu.allocated, StepMemoryFor(capacity, 71, 8).total());
  }
}

// The default steps of a model with a large vocabulary.
VerifierOptions LargeOptions() {
  VerifierOptions options;
  options.max_context = 131072;
  options.max_tree_nodes = 64;
  options.max_sequences = 64;
  options.max_rows = options.max_logits_rows = 2080;
  return options;
}

ModelConfig LargeModel() {
  ModelConfig model;
  model.layers = 27;
  model.vocab_size = 129280;
  model.hidden_size = 2048;
  return model;
}

TEST(DefaultPagesTest, TheCacheLeavesRoomForAllThatComesAfterIt) {
  const int64_t beside = BytesBesideCache(LargeOptions(), LargeModel(), nullptr);
  EXPECT_GT(beside, int64_t{2080} * 129280 * 4) << "the choices of controlled steps alone";
  constexpr int64_t kPageBytes = 64 * 27 * 576 * 2;
  for (const int64_t left : {int64_t{4} << 30, int64_t{8} << 30, int64_t{100} << 30}) {
    const int64_t pages = DefaultPages(10, 1 << 20, kPageBytes, BytesForCache(left, beside));
    EXPECT_LE(pages * kPageBytes + beside, left) << left;
    EXPECT_GE(pages * kPageBytes, (left - beside) / 10 * 8) << "most of it is the cache's";
  }
  EXPECT_LT(int64_t{8 << 20} * 1024 / 10, beside) << "a tenth of 8 GiB would not do";
}

TEST(DefaultPagesTest, TheCacheHoldsAtLeastOneSequenceAndNoMoreThanAll) {
  EXPECT_EQ(BytesForCache(100, 200), 0);
  EXPECT_EQ(DefaultPages(10, 4, 1000, BytesForCache(100, 200)), 10);
  EXPECT_EQ(DefaultPages(10, 4, 1000, 25000), 25);
  EXPECT_EQ(DefaultPages(10, 4, 1000, 90000), 40);
}

TEST(RecordedKindsTest, EachSizeIsThereOnceAndAgainControlledWhereRowsHaveLogits) {
  const StepCapacity capacity{
      .max_rows = 160, .max_logits_rows = 130, .max_sequences = 8, .max_pages_per_sequence = 17};
  size_t controlled = 0, with_logits = 0;
  for (const StepKind& kind : RecordedKinds(capacity)) {
    controlled += kind.controlled ? 1 : 0;
    with_logits += !kind.controlled && kind.size.logits_rows > 0 ? 1 : 0;
  }
  EXPECT_EQ(controlled, with_logits);
  EXPECT_EQ(RecordedKinds(capacity).size() - controlled, StepSizes(capacity).All().size());
}

}  // namespace
}  // namespace arborist::verifier
