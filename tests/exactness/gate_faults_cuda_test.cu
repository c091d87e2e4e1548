// The faults of gate_faults_test planted in the kernels and in the step's input on the device: each must turn
// the gate red there too. Skipped without a GPU.
#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/testing/small_shapes.h"
#include "tests/exactness/gate.h"
#include "tests/support/random_checkpoint.h"

namespace arborist::tests {
namespace {

using kernels::KernelSet;
using kernels::kMaxTailKeys;
using verifier::ForwardResult;
using verifier::KvPlanes;
using verifier::Model;
using verifier::ModelConfig;
using verifier::StepBatchView;

cudaStream_t Stream(StreamView stream) { return static_cast<cudaStream_t>(stream.cuda_stream); }

__global__ void AddTheNextNode(kernels::TreeAcceptArgs args) {
  const int64_t tree = blockIdx.x;
  const int32_t begin = args.tree_begin[tree], length = args.path_length[tree];
  if (length < 1) {
    return;
  }
  const int32_t next = args.path[begin + length - 1] + 1;
  if (begin + next < kernels::TreeAcceptEnd(args, tree)) {  // the next node, child or not
    args.path[begin + length] = next;
    args.path_length[tree] = length + 1;
    args.bonus[tree] = args.chosen[begin + next];
  }
}

absl::Status AcceptOneTooMany(const kernels::TreeAcceptArgs& args, StreamView stream) {
  RETURN_IF_ERROR(kernels::CudaKernels().tree_accept(args, stream));
  AddTheNextNode<<<static_cast<unsigned>(args.path_length.size), 1, 0, Stream(stream)>>>(args);
  return LaunchStatus("planted accept");
}

// One move after the other, the last first: path 0,2,3 reads a row that it has already overwritten.
__global__ void MoveInPlace(kernels::KvCompactArgs args) {
  auto* plane = static_cast<char*>(args.plane[blockIdx.x]);
  const int64_t bytes = args.row_bytes[blockIdx.x];
  for (int64_t c = threadIdx.x; c < bytes; c += blockDim.x) {
    for (int64_t move = args.from.size - 1; move >= 0; --move) {
      const int64_t from = args.from[move], to = args.to[move];
      if (from >= 0 && to >= 0) {
        plane[to * bytes + c] = plane[from * bytes + c];
      }
    }
  }
}

absl::Status CompactInPlace(const kernels::KvCompactArgs& args, StreamView stream) {
  MoveInPlace<<<static_cast<unsigned>(args.plane.size), 256, 0, Stream(stream)>>>(args);
  return LaunchStatus("planted compaction");
}

constexpr int64_t kMostRows = 1024;
__device__ int32_t shifted_position[kMostRows];

__global__ void ShiftPositions(View1<const int32_t> position) {
  if (threadIdx.x < position.size) {
    shifted_position[threadIdx.x] = position[threadIdx.x] + static_cast<int32_t>(threadIdx.x);
  }
}

absl::Status NoiseKeyedByNode(const kernels::SampleTargetArgs& args, StreamView stream) {
  Check(args.position.size <= kMostRows, "the steps of this test are small");
  ShiftPositions<<<1, kMostRows, 0, Stream(stream)>>>(args.position);
  kernels::SampleTargetArgs faulty = args;
  void* shifted;
  RETURN_IF_ERROR(CudaStatus(cudaGetSymbolAddress(&shifted, shifted_position), "planted noise"));
  faulty.position.data = static_cast<const int32_t*>(shifted);
  return kernels::CudaKernels().sample_target(faulty, stream);
}

enum class Tampering { kPositionOfSlot, kParentMasked, kNeighbourUnmasked, kTreeRowsLeftOut };

// A thread a row. Reads the step, writes the copies that the model will see.
__global__ void TamperWithTrees(Tampering how, StepBatchView step, int32_t* position, int32_t* tail_slot,
                                int32_t* tail_count) {
  const int64_t row = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  bool is_node = false;
  for (int64_t i = 0; row < step.rows && i < step.logits_rows; ++i) {
    is_node = is_node || step.logits_row[i] == row;
  }
  if (!is_node || step.parent[row] < 0) {
    return;
  }
  int64_t first = row;
  while (first > 0 && step.sequence[first - 1] == step.sequence[row]) {
    --first;
  }
  int32_t* tail = tail_slot + row * kMaxTailKeys;
  const int32_t count = step.tail_count[row], depth = step.position[row] - step.position[first];
  switch (how) {
    case Tampering::kPositionOfSlot:
      position[row] = step.position[first] + static_cast<int32_t>(row - first);
      break;
    case Tampering::kParentMasked:  // it does not see its parent, though it sees everything before
      tail[count - 2] = tail[count - 1];
      tail_count[row] = count - 1;
      break;
    case Tampering::kNeighbourUnmasked:  // it sees a sibling's row as if that were an ancestor
      if (step.parent[row] == step.parent[row - 1] && count >= 2) {
        tail[count - 2] = step.write_slot[row - 1];
      }
      break;
    case Tampering::kTreeRowsLeftOut:  // it sees the prefix, then only itself
      tail[count - 1 - depth] = tail[count - 1];
      tail_count[row] = count - depth;
      break;
  }
}

class TamperedModel : public Model {
 public:
  TamperedModel(std::unique_ptr<Model> model, Tampering how, Device& device)
      : model_(std::move(model)), how_(how), device_(device) {
    const size_t rows = static_cast<size_t>(model_->max_rows());
    memory_ = *device.Allocate(rows * (kMaxTailKeys + 2) * sizeof(int32_t), "planted fault");
  }
  const ModelConfig& config() const override { return model_->config(); }
  int max_rows() const override { return model_->max_rows(); }

  absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) override {
    int32_t* position = memory_.As<int32_t>();
    int32_t* tail_count = position + max_rows();
    int32_t* tail_slot = tail_count + max_rows();
    const size_t bytes = static_cast<size_t>(batch.rows) * sizeof(int32_t);
    RETURN_IF_ERROR(device_.Copy(position, batch.position, bytes));
    RETURN_IF_ERROR(device_.Copy(tail_count, batch.tail_count, bytes));
    RETURN_IF_ERROR(device_.Copy(tail_slot, batch.tail_slot, bytes * kMaxTailKeys));
    const auto blocks = static_cast<unsigned>((batch.rows + 127) / 128);
    TamperWithTrees<<<blocks, 128, 0, Stream(device_.stream())>>>(how_, batch, position, tail_slot,
                                                                  tail_count);
    RETURN_IF_ERROR(LaunchStatus("planted input"));
    StepBatchView changed = batch;
    changed.position = position;
    changed.tail_count = tail_count;
    changed.tail_slot = tail_slot;
    return model_->Forward(changed, planes);
  }

 private:
  std::unique_ptr<Model> model_;
  Tampering how_;
  Device& device_;
  DeviceMemory memory_;
};

class PlantedFaultsCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto device = OpenCudaDevice({}); !device.ok()) {
      GTEST_SKIP() << "skipped: " << device.status().message();
    }
    WriteRandomTarget(directory_.path() + "/target", 11);
    WriteRandomDrafter(directory_.path() + "/drafter", 12);
  }

  WorldOptions Options() const {
    WorldOptions options;
    options.target = directory_.path() + "/target";
    options.drafter = directory_.path() + "/drafter";
    options.device = DeviceKind::kCuda;
    return options;
  }
  static int Red(const WorldOptions& options) {
    const absl::StatusOr<int> red = RedCells(options, kernels::testing::SmallShapes());
    EXPECT_TRUE(red.ok()) << red.status();
    return red.value_or(0);
  }
  int RedWith(const KernelSet& kernels) const {
    WorldOptions options = Options();
    options.kernels = &kernels;
    return Red(options);
  }
  int RedWith(Tampering how) const {
    WorldOptions options = Options();
    options.wrap_model = [how](std::unique_ptr<Model> model, Device& device) {
      return std::make_unique<TamperedModel>(std::move(model), how, device);
    };
    return Red(options);
  }

  TemporaryDirectory directory_;
};

TEST_F(PlantedFaultsCudaTest, WithoutAFaultEveryCellIsGreen) {
  EXPECT_EQ(RedWith(kernels::KernelsFor(DeviceKind::kCuda)), 0);
}

TEST_F(PlantedFaultsCudaTest, AcceptOffByOneTurnsTheGateRed) {
  KernelSet faulty = kernels::KernelsFor(DeviceKind::kCuda);
  faulty.tree_accept = AcceptOneTooMany;
  EXPECT_GT(RedWith(faulty), 0);
}

TEST_F(PlantedFaultsCudaTest, CompactionInPlaceTurnsTheGateRed) {
  KernelSet faulty = kernels::KernelsFor(DeviceKind::kCuda);
  faulty.kv_compact = CompactInPlace;
  EXPECT_GT(RedWith(faulty), 0);
}

TEST_F(PlantedFaultsCudaTest, NoiseKeyedByNodeTurnsTheGateRed) {
  KernelSet faulty = kernels::KernelsFor(DeviceKind::kCuda);
  faulty.sample_target = NoiseKeyedByNode;
  EXPECT_GT(RedWith(faulty), 0);
}

TEST_F(PlantedFaultsCudaTest, PositionFromTheSlotInsteadOfTheDepthTurnsTheGateRed) {
  EXPECT_GT(RedWith(Tampering::kPositionOfSlot), 0);
}

TEST_F(PlantedFaultsCudaTest, TheLastAncestorMaskedWronglyTurnsTheGateRed) {
  EXPECT_GT(RedWith(Tampering::kParentMasked), 0);
}

TEST_F(PlantedFaultsCudaTest, AnUnmaskedNeighbourTurnsTheGateRed) {
  EXPECT_GT(RedWith(Tampering::kNeighbourUnmasked), 0);
}

TEST_F(PlantedFaultsCudaTest, TreeRowsLeftOutOfTheSlotMapTurnTheGateRed) {
  EXPECT_GT(RedWith(Tampering::kTreeRowsLeftOut), 0);
}

}  // namespace
}  // namespace arborist::tests
