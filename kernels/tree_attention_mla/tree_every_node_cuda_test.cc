#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/testing/small_shapes.h"
#include "kernels/tree_attention_mla/cuda_case.h"
#include "kernels/tree_attention_mla/testing/tree_forest.h"

namespace arborist::kernels {
namespace {

using testing::AttentionCase;
using testing::AttentionShape;
using testing::CaseOnDevice;
using testing::Random;
using testing::RootsAroundBlocks;
using testing::RowRange;
using testing::Small;
using testing::Thinned;

struct Kind {
  AttentionShape shape;
  DType dtype;
};

// Both shapes of the tensor cores, and the general version with both kinds of cache.
const Kind kLargeModel{{.heads = 8, .latent = 512, .rope = 64}, DType::kBF16};
const Kind kPair{{.heads = 8, .latent = 128, .rope = 32}, DType::kBF16};
const Kind kGeneral{{.heads = 2, .latent = 24, .rope = 8}, DType::kBF16};
const Kind kGeneralFloat{{.heads = 3, .latent = 70, .rope = 3}, DType::kF32};

class TreeEveryNodeCudaTest : public testing::CudaTest {
 protected:
  void ExpectAt(const Kind& kind, const std::vector<int64_t>& roots, int nodes, int chain) {
    SCOPED_TRACE(Name(kind.dtype));
    testing::ExpectEveryNodeAt(random_, kind.shape, roots, nodes, chain, [&](AttentionCase& c) {
      return [this, device = std::make_shared<CaseOnDevice>(c, kind.dtype)](
                 const std::vector<RowRange>& calls) { return device->Rows(calls, stream()); };
    });
  }

  Random random_;
};

// Splits are among them: they end at every 256 positions, at every 512 from 33 blocks (2112 positions) on.
TEST_F(TreeEveryNodeCudaTest, IsItsStepAndItsRowOfAnyChunkAroundEveryBlockAndSplit) {
  const int nodes = Small(20, 6), chain = Small(6, 3);
  ExpectAt(kPair, {0, 1}, nodes, chain);
  for (const Kind& kind : {kPair, kLargeModel}) {
    ExpectAt(kind, Thinned(RootsAroundBlocks(64, Small(4224, 2112)), 2), nodes, chain);
  }
  for (const Kind& kind : {kGeneral, kGeneralFloat}) {
    ExpectAt(kind, Thinned(RootsAroundBlocks(64, Small(2752, 512)), 2), nodes, chain);
  }
}

// From 513 blocks on a split has 1024 positions.
TEST_F(TreeEveryNodeCudaTest, IsItsStepAndItsRowOfAnyChunkWhereTheLongestSplitsBegin) {
  const std::vector<int64_t> roots = Small<std::vector<int64_t>>(
      {32767, 32824, 32831, 32888, 32894, 32895, 32896, 33785, 33848, 33854, 33855, 34816, 34872, 34879},
      {2168});
  ExpectAt(kPair, roots, Small(20, 6), Small(10, 4));
  ExpectAt(kLargeModel, roots, Small(20, 6), Small(10, 4));
}

TEST_F(TreeEveryNodeCudaTest, IsItsStepAndItsRowOfAnyChunkForOtherNumbersOfHeads) {
  const std::vector<Kind> kinds = {{{.heads = 16, .latent = 512, .rope = 64}, DType::kBF16},
                                   {{.heads = 64, .latent = 512, .rope = 64}, DType::kBF16},
                                   {{.heads = 32, .latent = 128, .rope = 32}, DType::kBF16},
                                   {{.heads = 128, .latent = 128, .rope = 32}, DType::kBF16},
                                   {{.heads = 8, .latent = 128, .rope = 32}, DType::kF32},
                                   {{.heads = 1, .latent = 1, .rope = 0}, DType::kF32}};
  for (const Kind& kind : Thinned(kinds, 2)) {
    ExpectAt(kind, Small<std::vector<int64_t>>({0, 120, 185, 319, 1087, 2168, 2175, 2624}, {0, 185}),
             Small(16, 5), Small(6, 3));
  }
}

TEST_F(TreeEveryNodeCudaTest, IsItsStepAndItsRowOfAnyChunkAtTheLongestContext) {
  ExpectAt(kPair, {Small(131072, 2000) - kMaxTreeDepth - 1}, Small(90, 5), Small(64, 3));
}

TEST_F(TreeEveryNodeCudaTest, IsItsStepAndItsRowOfAnyChunkInTheLargestAndDeepestTrees) {
  constexpr int kRows = 256;  // 255 drafted nodes
  for (const Kind& kind : Small<std::vector<Kind>>({kPair, kLargeModel, kGeneral, kGeneralFloat}, {kPair})) {
    ExpectAt(kind, Small<std::vector<int64_t>>({1, 127, 1087}, {127}), Small(kRows, 40),
             Small(kMaxTreeDepth + 1, 36));
  }
}

}  // namespace
}  // namespace arborist::kernels
