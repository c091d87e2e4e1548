// A call is divided among blocks by rows and parts or by a list of tiles and parts, with tiles of several
// sizes. Its size on the host decides; no bit may.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "kernels/tree_attention_mla/cuda_case.h"
#include "kernels/tree_attention_mla/testing/tree_story.h"

namespace arborist::kernels {
namespace {

using testing::AddTree;
using testing::AttentionCase;
using testing::AttentionShape;
using testing::PagesFor;
using testing::Random;
using testing::RandomStory;
using testing::RowsOnDevice;
using testing::Story;

struct Growth {
  int64_t heads;
  int64_t latent;
  int64_t rope;
  int64_t prefix;
  int nodes;
  std::vector<int> sequences;  // of a call, from few to many
};

class TreeDivisionCudaTest : public testing::CudaTest {};

TEST_F(TreeDivisionCudaTest, ARowHasTheSameBitsHoweverManySequencesStandBesideItAndPaddingRowsAreZero) {
  for (const Growth& g :
       {Growth{8, 512, 64, 250, 9, {1, 3, 16, 70, 130}}, Growth{8, 512, 64, 1490, 5, {1, 8, 120}},
        Growth{16, 512, 64, 20, 7, {1, 90}}, Growth{24, 512, 64, 300, 4, {1, 100}},
        Growth{64, 512, 64, 700, 3, {1, 8, 50}}, Growth{128, 512, 64, 130, 5, {1, 4, 15}},
        Growth{8, 128, 32, 600, 3, {1, 8, 30, 150}}}) {
    Random random;
    const AttentionShape shape{.heads = g.heads, .latent = g.latent, .rope = g.rope};
    const Story s = RandomStory(random, shape, g.prefix, g.nodes, true);
    std::vector<std::vector<uint32_t>> expected;
    for (const int sequences : g.sequences) {
      AttentionCase c(shape, sequences * PagesFor(s.prefix() + s.nodes()));
      for (int i = 0; i < sequences; ++i) {
        AddTree(c, s);
      }
      c.AddPaddingRow();
      c.AddPaddingRow();
      auto rows = RowsOnDevice(c, DType::kBF16, stream());
      for (int i = 0; i < 2; ++i) {
        for (const uint32_t bits : rows.back()) {
          ASSERT_EQ(bits, 0u) << "heads " << g.heads << " sequences " << sequences;
        }
        rows.pop_back();
      }
      if (expected.empty()) {
        expected = rows;
      }
      for (size_t row = 0; row < rows.size(); ++row) {
        ASSERT_EQ(rows[row], expected[row % expected.size()])
            << "heads " << g.heads << " prefix " << g.prefix << " sequences " << sequences << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace arborist::kernels
