// A gate is worth what it catches: each fault below is one that speculative decoders have shipped, and each
// must turn the gate red while plain decoding still looks healthy.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/exactness/gate.h"
#include "tests/support/random_checkpoint.h"

namespace arborist::tests {
namespace {

using kernels::CpuKernels;
using kernels::KernelSet;
using verifier::StepBatch;

class PlantedFaultsTest : public testing::Test {
 protected:
  PlantedFaultsTest() {
    WriteRandomTarget(directory_.path() + "/target", 11);
    WriteRandomDrafter(directory_.path() + "/drafter", 12);
  }

  int RedCells(const KernelSet& kernels, std::function<void(StepBatch&)> tamper, bool few = false) {
    const absl::StatusOr<int> red = tests::RedCells({.target = directory_.path() + "/target",
                                                     .drafter = directory_.path() + "/drafter",
                                                     .kernels = &kernels,
                                                     .tamper = std::move(tamper)},
                                                    few);
    EXPECT_TRUE(red.ok()) << red.status();
    return red.value_or(0);
  }

  TemporaryDirectory directory_;
};

// Calls body(row, first_row, rows) for each row of the trees in the batch.
template <typename Body>
void ForEachTreeNode(StepBatch& batch, const Body& body) {
  for (int sequence = 0; sequence < batch.sequences; ++sequence) {
    const int first = batch.first_row[sequence];
    const bool is_tree =
        std::find(batch.logits_row.begin(), batch.logits_row.end(), first) != batch.logits_row.end();
    for (int row = first + 1; is_tree && row < batch.first_row[sequence + 1]; ++row) {
      body(row, first);
    }
  }
}

int32_t* Tail(StepBatch& batch, int row) {
  return batch.tail_slot.data() + static_cast<int64_t>(row) * kernels::kMaxTailKeys;
}

absl::Status AcceptOneTooMany(const kernels::TreeAcceptArgs& args, StreamView stream) {
  const absl::Status status = CpuKernels().tree_accept(args, stream);
  for (int64_t tree = 0; tree < args.path_length.size; ++tree) {
    const int32_t begin = args.tree_begin[tree];
    const int32_t length = args.path_length[tree];
    const int32_t next = args.path[begin + length - 1] + 1;
    if (begin + next < args.tree_begin[tree + 1]) {  // the next node, child or not
      args.path[begin + length] = next;
      args.path_length[tree] = length + 1;
      args.bonus[tree] = args.chosen[begin + next];
    }
  }
  return status;
}

// Copies one move after the other, the last first: path 0,2,3 reads a row that it has already overwritten.
absl::Status CompactInPlace(const kernels::KvCompactArgs& args, StreamView) {
  for (int64_t plane = 0; plane < args.plane.size; ++plane) {
    for (int64_t move = args.from.size - 1; move >= 0; --move) {
      char* base = static_cast<char*>(args.plane[plane]);
      const int64_t bytes = args.row_bytes[plane];
      std::memmove(base + args.to[move] * bytes, base + args.from[move] * bytes, static_cast<size_t>(bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status NoiseKeyedByNode(const kernels::SampleTargetArgs& args, StreamView stream) {
  std::vector<int32_t> position(args.position.data, args.position.data + args.position.size);
  for (size_t row = 0; row < position.size(); ++row) {
    position[row] += static_cast<int32_t>(row);
  }
  kernels::SampleTargetArgs faulty = args;
  faulty.position = {position.data(), static_cast<int64_t>(position.size())};
  return CpuKernels().sample_target(faulty, stream);
}

// A parameter that is forgotten where a step has more rows than one.
template <auto kField>
absl::Status OffInTrees(const kernels::SampleTargetArgs& args, StreamView stream) {
  std::vector<kernels::SamplingParams> params(args.params.data, args.params.data + args.params.size);
  for (kernels::SamplingParams& of_sequence : params) {
    of_sequence.*kField = args.chosen.size > 1 ? kernels::SamplingParams{}.*kField : of_sequence.*kField;
  }
  kernels::SampleTargetArgs faulty = args;
  faulty.params = {params.data(), static_cast<int64_t>(params.size())};
  return CpuKernels().sample_target(faulty, stream);
}

TEST_F(PlantedFaultsTest, WithoutAFaultEveryCellIsGreen) { EXPECT_EQ(RedCells(CpuKernels(), nullptr), 0); }

TEST_F(PlantedFaultsTest, AcceptOffByOneTurnsTheGateRed) {
  KernelSet faulty = CpuKernels();
  faulty.tree_accept = AcceptOneTooMany;
  EXPECT_GT(RedCells(faulty, nullptr), 0);
}

TEST_F(PlantedFaultsTest, CompactionInPlaceTurnsTheGateRed) {
  KernelSet faulty = CpuKernels();
  faulty.kv_compact = CompactInPlace;
  EXPECT_GT(RedCells(faulty, nullptr), 0);
}

TEST_F(PlantedFaultsTest, NoiseKeyedByNodeTurnsTheGateRed) {
  KernelSet faulty = CpuKernels();
  faulty.sample_target = NoiseKeyedByNode;
  EXPECT_GT(RedCells(faulty, nullptr), 0);
}

TEST_F(PlantedFaultsTest, TopKLeftOutInTreesTurnsTheGateRed) {
  KernelSet faulty = CpuKernels();
  faulty.sample_target = OffInTrees<&kernels::SamplingParams::top_k>;
  EXPECT_GT(RedCells(faulty, nullptr), 0);
}

TEST_F(PlantedFaultsTest, TopPLeftOutInTreesTurnsTheGateRed) {
  KernelSet faulty = CpuKernels();
  faulty.sample_target = OffInTrees<&kernels::SamplingParams::top_p>;
  EXPECT_GT(RedCells(faulty, nullptr), 0);
}

TEST_F(PlantedFaultsTest, MinPLeftOutInTreesTurnsTheGateRed) {
  KernelSet faulty = CpuKernels();
  faulty.sample_target = OffInTrees<&kernels::SamplingParams::min_p>;
  EXPECT_GT(RedCells(faulty, nullptr), 0);
}

TEST_F(PlantedFaultsTest, PositionFromTheSlotInsteadOfTheDepthTurnsTheGateRed) {
  EXPECT_GT(RedCells(CpuKernels(),
                     [](StepBatch& batch) {
                       ForEachTreeNode(batch, [&](int row, int first) {
                         batch.position[row] = batch.position[first] + (row - first);
                       });
                     }),
            0);
}

// A node that does not see its parent, though it sees everything before.
TEST_F(PlantedFaultsTest, TheLastAncestorMaskedWronglyTurnsTheGateRed) {
  EXPECT_GT(RedCells(CpuKernels(),
                     [](StepBatch& batch) {
                       ForEachTreeNode(batch, [&](int row, int) {
                         int32_t* tail = Tail(batch, row);
                         int32_t& count = batch.tail_count[row];
                         tail[count - 2] = tail[count - 1];
                         --count;
                       });
                     }),
            0);
}

// A node that sees a sibling's row as if it were an ancestor.
TEST_F(PlantedFaultsTest, AnUnmaskedNeighbourTurnsTheGateRed) {
  EXPECT_GT(RedCells(CpuKernels(),
                     [](StepBatch& batch) {
                       ForEachTreeNode(batch, [&](int row, int) {
                         int32_t* tail = Tail(batch, row);
                         const int32_t count = batch.tail_count[row];
                         if (batch.parent[row] != batch.parent[row - 1] || count < 2) {
                           return;
                         }
                         tail[count - 2] = batch.write_slot[row - 1];
                       });
                     }),
            0);
}

void LeaveTreeRowsOut(StepBatch& batch) {
  ForEachTreeNode(batch, [&](int row, int first) {
    int32_t* tail = Tail(batch, row);
    int32_t& count = batch.tail_count[row];
    const int32_t depth = batch.position[row] - batch.position[first];
    tail[count - 1 - depth] = tail[count - 1];  // the prefix, then only itself
    count -= depth;
  });
}

TEST_F(PlantedFaultsTest, TreeRowsLeftOutOfTheSlotMapTurnTheGateRed) {
  EXPECT_GT(RedCells(CpuKernels(), LeaveTreeRowsOut), 0);
}

// Those of gate_faults_cuda_test under a sanitizer.
TEST_F(PlantedFaultsTest, FewCellsAreGreenWithoutAFaultAndRedWithOne) {
  EXPECT_EQ(RedCells(CpuKernels(), nullptr, /*few=*/true), 0);
  EXPECT_GT(RedCells(CpuKernels(), LeaveTreeRowsOut, /*few=*/true), 0);
}

}  // namespace
}  // namespace arborist::tests
