// Each fault that the exactness checks must find, planted on purpose: with it, text differs from plain
// decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/testing/drive.h"
#include "verifier/testing/test_verifier.h"

namespace arborist::verifier {
namespace {

using kernels::kMaxTailKeys;

constexpr int kVocabulary = 64;
constexpr int kTokens = 64;

struct Fault {
  kernels::KernelSet kernels = kernels::CpuKernels();
  WrappedModel::Before before = nullptr;
};

class PlantedFaultsTest : public testing::TestWithParam<std::string> {
 protected:
  // Whether tree decoding with the fault still gives plain decoding's text and log-probabilities.
  static bool Unnoticed(const Fault& fault, float temperature) {
    OpenArgs args = MakeOpen("request", RandomTokens(50, kVocabulary, 17), kTokens, 16);
    args.sampling = {.temperature = temperature, .seed = 5};
    TestVerifierOptions options;
    options.fake.vocabulary = kVocabulary;
    if (GetParam() != "fake") {
      options.make_model = [](const ModelOptions& model, Device& device) {
        return LoadGolden(GetParam(), model, device);
      };
    }
    const Decoded plain = DecodePlain(*TestVerifier(options), args);
    EXPECT_EQ(plain.tokens.size(), static_cast<size_t>(kTokens)) << plain.closed;
    std::vector<TokenId> text = args.prompt;
    text.insert(text.end(), plain.tokens.begin(), plain.tokens.end());
    options.kernels = &fault.kernels;
    options.before = fault.before;
    const Decoded trees = DecodeTrees(*TestVerifier(options), args, ReplayDrafter(text, kVocabulary, 16, 23));
    return trees.closed.ok() && trees.tokens == plain.tokens && trees.log_probs == plain.log_probs;
  }
};

// Calls `alter` for every tree row whose depth is at least 1. Rows of a tree come first in a step.
template <typename Alter>
WrappedModel::Before ForDraftedRows(Alter alter) {
  return [alter](StepBatch& batch, KvPlanes&) {
    for (const int row : batch.logits_row) {
      if (batch.parent[row] >= 0) {
        alter(batch, row);
      }
    }
    return absl::OkStatus();
  };
}

int FirstRow(const StepBatch& batch, int row) { return batch.first_row[batch.sequence[row]]; }

absl::Status AcceptOneTooMany(const kernels::TreeAcceptArgs& args, StreamView stream) {
  const absl::Status status = kernels::CpuKernels().tree_accept(args, stream);
  for (int64_t tree = 0; tree < args.path_length.size; ++tree) {
    const int32_t begin = args.tree_begin[tree];
    int32_t& length = args.path_length[tree];
    for (int32_t row = begin; row < args.tree_begin[tree + 1]; ++row) {
      if (args.parent[row] == args.path[begin + length - 1]) {
        args.path[begin + length] = row - begin;
        args.bonus[tree] = args.chosen[row];
        ++length;
        break;
      }
    }
  }
  return status;
}

// As threads without an order would: the last move comes first.
absl::Status CompactInPlace(const kernels::KvCompactArgs& args, StreamView) {
  for (int64_t plane = 0; plane < args.plane.size; ++plane) {
    auto* data = static_cast<std::byte*>(args.plane[plane]);
    const int64_t bytes = args.row_bytes[plane];
    for (int64_t move = args.from.size - 1; move >= 0; --move) {
      std::memcpy(data + args.to[move] * bytes, data + args.from[move] * bytes, static_cast<size_t>(bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status CompactNothing(const kernels::KvCompactArgs&, StreamView) { return absl::OkStatus(); }

absl::Status SampleWithNoiseByNode(const kernels::SampleTargetArgs& args, StreamView stream) {
  std::vector<int32_t> node(static_cast<size_t>(args.position.size));
  for (size_t i = 0; i < node.size(); ++i) {
    node[i] = args.position[0] + static_cast<int32_t>(i);
  }
  kernels::SampleTargetArgs altered = args;
  altered.position = {node.data(), static_cast<int64_t>(node.size())};
  return kernels::CpuKernels().sample_target(altered, stream);
}

TEST_P(PlantedFaultsTest, WithoutAFaultTextIsEqual) {
  EXPECT_TRUE(Unnoticed(Fault{}, 0));
  EXPECT_TRUE(Unnoticed(Fault{}, 1));
}

TEST_P(PlantedFaultsTest, AcceptingOneNodeTooManyIsNoticed) {
  Fault fault;
  fault.kernels.tree_accept = AcceptOneTooMany;
  EXPECT_FALSE(Unnoticed(fault, 0));
  EXPECT_FALSE(Unnoticed(fault, 1));
}

TEST_P(PlantedFaultsTest, CompactionInPlaceIsNoticed) {
  Fault fault;
  fault.kernels.kv_compact = CompactInPlace;
  EXPECT_FALSE(Unnoticed(fault, 0));
}

TEST_P(PlantedFaultsTest, ForgottenCompactionIsNoticed) {
  Fault fault;
  fault.kernels.kv_compact = CompactNothing;
  EXPECT_FALSE(Unnoticed(fault, 0));
}

TEST_P(PlantedFaultsTest, NoiseKeyedByNodeIsNoticedAtATemperature) {
  Fault fault;
  fault.kernels.sample_target = SampleWithNoiseByNode;
  EXPECT_TRUE(Unnoticed(fault, 0));  // greedy has no noise
  EXPECT_FALSE(Unnoticed(fault, 1));
}

TEST_P(PlantedFaultsTest, PositionFromTheSlotInsteadOfTheDepthIsNoticed) {
  Fault fault;
  fault.before = ForDraftedRows([](StepBatch& batch, int row) {
    const int first = FirstRow(batch, row);
    batch.position[row] = batch.position[first] + row - first;
  });
  EXPECT_FALSE(Unnoticed(fault, 0));
}

TEST_P(PlantedFaultsTest, AnUnmaskedLastAncestorIsNoticed) {
  // The node's older neighbour is visible in place of its parent.
  Fault fault;
  fault.before = ForDraftedRows([](StepBatch& batch, int row) {
    int32_t* tail = batch.tail_slot.data() + row * kMaxTailKeys;
    tail[batch.tail_count[row] - 2] = batch.write_slot[row - 1];
  });
  EXPECT_FALSE(Unnoticed(fault, 0));
}

TEST_P(PlantedFaultsTest, AHiddenLastAncestorIsNoticed) {
  Fault fault;
  fault.before = ForDraftedRows([](StepBatch& batch, int row) {
    int32_t* tail = batch.tail_slot.data() + row * kMaxTailKeys;
    tail[batch.tail_count[row] - 2] = tail[batch.tail_count[row] - 1];
    --batch.tail_count[row];
  });
  EXPECT_FALSE(Unnoticed(fault, 0));
}

TEST_P(PlantedFaultsTest, TreeRowsLeftOutOfTheSlotMapAreNoticed) {
  Fault fault;
  fault.before = ForDraftedRows([](StepBatch& batch, int row) {
    int32_t* tail = batch.tail_slot.data() + row * kMaxTailKeys;
    const int depth = batch.position[row] - batch.position[FirstRow(batch, row)];
    tail[batch.tail_count[row] - 1 - depth] = tail[batch.tail_count[row] - 1];
    batch.tail_count[row] -= depth;
  });
  EXPECT_FALSE(Unnoticed(fault, 0));
}

// A decoder's sum hardly depends on the order of its keys; the fake's hash does.
class KeyOrderFaultTest : public PlantedFaultsTest {};

TEST_P(KeyOrderFaultTest, OneSwappedPairOfKeysIsNoticed) {
  Fault fault;
  fault.before = ForDraftedRows([](StepBatch& batch, int row) {
    int32_t* tail = batch.tail_slot.data() + row * kMaxTailKeys;
    std::swap(tail[0], tail[1]);
  });
  EXPECT_FALSE(Unnoticed(fault, 0));
}

INSTANTIATE_TEST_SUITE_P(Models, KeyOrderFaultTest, testing::Values("fake"));
INSTANTIATE_TEST_SUITE_P(Models, PlantedFaultsTest, testing::Values("fake", "v3_groups", "kimi_step_ramp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace arborist::verifier
