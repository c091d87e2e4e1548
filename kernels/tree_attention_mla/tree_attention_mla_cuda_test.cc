#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/small_shapes.h"
#include "kernels/tree_attention_mla/cuda_case.h"
#include "kernels/tree_attention_mla/testing/tree_story.h"

namespace arborist::kernels {
namespace {

using testing::AddTree;
using testing::AttentionCase;
using testing::AttentionShape;
using testing::Close;
using testing::OracleOut;
using testing::OutOnDevice;
using testing::PagesFor;
using testing::Random;
using testing::RandomStory;
using testing::RowsOnDevice;
using testing::Small;
using testing::Story;
using testing::Thinned;

struct Kind {
  AttentionShape shape;
  DType dtype;
};

// The tensor-core shapes (K2's and the shipped pair's) and what only the general version takes.
const std::vector<Kind>& Kinds() {
  static const auto* kinds = new std::vector<Kind>{
      {{.heads = 8, .latent = 512, .rope = 64}, DType::kBF16},
      {{.heads = 16, .latent = 512, .rope = 64}, DType::kBF16},
      {{.heads = 64, .latent = 512, .rope = 64}, DType::kBF16},
      {{.heads = 8, .latent = 128, .rope = 32}, DType::kBF16},
      {{.heads = 32, .latent = 128, .rope = 32}, DType::kBF16},
      {{.heads = 128, .latent = 128, .rope = 32}, DType::kBF16},
      {{.heads = 2, .latent = 24, .rope = 8}, DType::kBF16},
      {{.heads = 3, .latent = 70, .rope = 3}, DType::kF32},
      {{.heads = 1, .latent = 1, .rope = 0}, DType::kF32},
      {{.heads = 8, .latent = 128, .rope = 32}, DType::kF32},
  };
  return *kinds;
}

std::string Describe(const Kind& kind) {
  return absl::StrCat("heads ", kind.shape.heads, " latent ", kind.shape.latent, " ",
                      std::string(Name(kind.dtype)));
}

class TreeAttentionMlaCudaTest : public testing::CudaTest {
 protected:
  // bf16: p and the query are rounded, 2^-9 each way of a weight; p's error is at most 2^-9 max |v|, and
  // weights that lean on one key make max |out| near max |v|. fp32: rounding of some 1e3 terms.
  static double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 0x1p-7 : 2e-5; }

  void ExpectOracle(AttentionCase& c, const Kind& kind) {
    EXPECT_TRUE(Close(OutOnDevice(c, kind.dtype, stream()), OracleOut(c, kind.dtype), Tolerance(kind.dtype)))
        << Describe(kind);
  }
};

TEST_F(TreeAttentionMlaCudaTest, MeansSoftmaxAttentionOverTheRowsKeys) {
  for (const Kind& kind : Kinds()) {
    Random random;
    const std::vector<int64_t> positions = {0,   1,   15,  16,  62,  63,  64,  126,
                                            127, 128, 191, 300, 383, 600, 1100};
    AttentionCase c(kind.shape, 80);
    for (const int64_t position : positions) {
      const int32_t sequence = c.AddSequence(position + 1);
      std::vector<int32_t> keys;
      for (int64_t p = 0; p <= position; ++p) {
        keys.push_back(c.Slot(sequence, p));
        c.Write(keys.back(), random.Normal(kind.shape.width(), 1));
      }
      c.AddRow(sequence, random.Normal(kind.shape.heads * kind.shape.width(), 1), keys);
    }
    ExpectOracle(c, kind);
  }
}

TEST_F(TreeAttentionMlaCudaTest, MeansItForTreesOfManySequencesAndPaddingRowsAreZero) {
  for (const Kind& kind : Thinned(Kinds(), 5)) {
    Random random;
    AttentionCase c(kind.shape, 200);
    for (const int64_t prefix : Thinned({0, 5, 60, 190, 700, 2300}, 3)) {
      AddTree(c, RandomStory(random, kind.shape, prefix,
                             1 + static_cast<int>(random.Below(kind.shape.heads > 16 ? 12 : Small(30, 12))),
                             true));
    }
    const int64_t used = c.rows() * kind.shape.heads * kind.shape.latent;
    for (int i = 0; i < 3; ++i) {
      c.AddPaddingRow();
    }
    ExpectOracle(c, kind);
    const std::vector<float> out = OutOnDevice(c, kind.dtype, stream());
    for (size_t i = static_cast<size_t>(used); i < out.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), 0u);
    }
  }
}

// With 255 drafted nodes.
TEST_F(TreeAttentionMlaCudaTest, MeansItForTheLargestTree) {
  for (const Kind& kind : {Kinds()[0], Kinds()[3], Kinds()[9]}) {
    Random random;
    AttentionCase c(kind.shape, 12);
    AddTree(c, RandomStory(random, kind.shape, 300, Small(256, 70), true));
    ExpectOracle(c, kind);
  }
}

TEST_F(TreeAttentionMlaCudaTest, SmallWeightsAddUp) {
  // Queries near zero: the output is a mean of all values, so a key left out or counted twice shows.
  for (const Kind& kind : Thinned(Kinds(), 4)) {
    Random random;
    AttentionCase c(kind.shape, 60);
    Story s = RandomStory(random, kind.shape, 1300, 10, true);
    for (auto& query : s.node_query) {
      query = random.Normal(kind.shape.heads * kind.shape.width(), 1e-3f);
    }
    for (auto& key : s.prefix_key) {
      for (float& value : key) {
        value += 2;
      }
    }
    AddTree(c, s);
    ExpectOracle(c, kind);
  }
}

TEST_F(TreeAttentionMlaCudaTest, MeansItAtTheLongestContext) {
  const int64_t longest = Small(131072, 9000);
  for (const Kind& kind : {Kinds()[0], Kinds()[3], Kinds()[9]}) {
    Random random;
    AttentionCase c(kind.shape, PagesFor(longest));
    AddTree(c, RandomStory(random, kind.shape, longest - 2, 2, true));
    ExpectOracle(c, kind);
  }
}

TEST_F(TreeAttentionMlaCudaTest, NeighboursChangeNoBit) {
  for (const Kind& kind : Thinned(Kinds(), 4)) {
    Random random;
    std::vector<Story> stories;
    int64_t pages = 4;
    for (const int64_t prefix : {0, 5, 63, 190, 700, 1100}) {
      stories.push_back(
          RandomStory(random, kind.shape, prefix, 1 + static_cast<int>(random.Below(Small(40, 10))), true));
      pages += PagesFor(prefix + stories.back().nodes());
    }
    std::vector<std::vector<uint32_t>> alone;
    for (const Story& s : stories) {
      AttentionCase c(s.shape, PagesFor(s.prefix() + s.nodes()));
      AddTree(c, s);
      const auto rows = RowsOnDevice(c, kind.dtype, stream());
      alone.insert(alone.end(), rows.begin(), rows.end());
    }
    AttentionCase together(kind.shape, pages);
    for (const Story& s : stories) {
      AddTree(together, s);
    }
    EXPECT_EQ(RowsOnDevice(together, kind.dtype, stream()), alone) << Describe(kind);
    together.AddPaddingRow();
    auto padded = RowsOnDevice(together, kind.dtype, stream());
    padded.pop_back();
    EXPECT_EQ(padded, alone) << Describe(kind);
  }
}

// Many sequences are worked on in other tiles than one.
TEST_F(TreeAttentionMlaCudaTest, ManySequencesGiveTheBitsOfOne) {
  const int sequences = Small(64, 24);
  struct Many {
    Kind kind;
    int64_t prefix;
    int nodes;
  };
  for (const Many& many : Thinned({Many{Kinds()[0], 700, 9}, Many{Kinds()[1], 250, 20},
                                   Many{Kinds()[3], 2300, 9}, Many{Kinds()[5], 1100, 3}},
                                  2)) {
    Random random;
    const Story s = RandomStory(random, many.kind.shape, many.prefix, many.nodes, true);
    AttentionCase alone(s.shape, PagesFor(s.prefix() + s.nodes()));
    AddTree(alone, s);
    const auto expected = RowsOnDevice(alone, many.kind.dtype, stream());
    AttentionCase together(s.shape, sequences * PagesFor(s.prefix() + s.nodes()));
    for (int i = 0; i < sequences; ++i) {
      AddTree(together, s);
    }
    const auto rows = RowsOnDevice(together, many.kind.dtype, stream());
    for (size_t row = 0; row < rows.size(); ++row) {
      ASSERT_EQ(rows[row], expected[row % expected.size()]) << Describe(many.kind) << " row " << row;
    }
  }
}

TEST_F(TreeAttentionMlaCudaTest, ATableOfSlotsGivesTheBitsOfATableOfPages) {
  for (const Kind& kind : Thinned(Kinds(), 4)) {
    Random random;
    AttentionCase c(kind.shape, 40);
    AddTree(c, RandomStory(random, kind.shape, 700, 9, true));
    AddTree(c, RandomStory(random, kind.shape, 1100, 5, true));
    const auto pages = RowsOnDevice(c, kind.dtype, stream());
    c.UseSlotTable();
    EXPECT_EQ(RowsOnDevice(c, kind.dtype, stream()), pages) << Describe(kind);
  }
}

TEST_F(TreeAttentionMlaCudaTest, IndexArraysThatLieOutsideTheCacheAreHarmless) {
  for (const Kind& kind : Thinned(Kinds(), 5)) {
    Random random;
    AttentionCase c(kind.shape, 12);
    AddTree(c, RandomStory(random, kind.shape, 400, 9, true));
    std::vector<float> out;
    std::vector<std::byte> scratch;
    const TreeAttentionMlaArgs args = c.Args(out, scratch, 1);  // its arrays are the case's own
    const_cast<int32_t&>(args.tail_slot.data[3]) = 1 << 30;
    const_cast<int32_t&>(args.tail_slot.data[kMaxTailKeys]) = -7;
    const_cast<int32_t&>(args.tail_count.data[1]) = 1000;
    const_cast<int32_t&>(args.prefix_blocks.data[2]) = 1 << 20;
    const_cast<int32_t&>(args.sequence.data[3]) = -1;
    OutOnDevice(c, kind.dtype, stream());
    Finish();
  }
}

TEST_F(TreeAttentionMlaCudaTest, TooLittleScratchIsRefusedAndNoRowsIsFine) {
  TreeAttentionMlaArgs args;
  args.query = {nullptr, 1, 1, 8};
  args.slots = 64;
  args.latent = 8;
  args.scale = 1;
  args.sequence.size = args.prefix_blocks.size = args.tail_count.size = args.tail_slot.rows = 1;
  args.out = {nullptr, 1, 1, 8};
  EXPECT_EQ(cuda::TreeAttentionMla(args, stream()).code(), absl::StatusCode::kInvalidArgument);
  AttentionCase c(AttentionShape{}, 1);
  c.AddSequence(1);
  EXPECT_TRUE(OutOnDevice(c, DType::kBF16, stream()).empty());
}

}  // namespace
}  // namespace arborist::kernels
