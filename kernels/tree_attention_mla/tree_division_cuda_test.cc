// A call is divided among blocks by rows and parts or by a list of tiles and parts, with tiles of several
// sizes. Its size on the host decides; no bit may.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "kernels/testing/small_shapes.h"
#include "kernels/tree_attention_mla/cuda_case.h"
#include "kernels/tree_attention_mla/cuda_scratch.h"
#include "kernels/tree_attention_mla/division.h"
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
using testing::Small;
using testing::Story;
using testing::Thinned;

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
  const std::vector<Growth> growths = {{8, 512, 64, 250, 9, {1, 3, 16, 70, 130}},
                                       {8, 512, 64, 1490, 5, {1, 8, 120}},
                                       {16, 512, 64, 20, 7, {1, 90}},
                                       {24, 512, 64, 300, 4, {1, 100}},
                                       {64, 512, 64, 700, 3, {1, 8, 50}},
                                       {128, 512, 64, 130, 5, {1, 4, 15}},
                                       {128, 512, 64, 16900, 4, {1, 4}},
                                       {8, 128, 32, 600, 3, {1, 8, 30, 150}}};
  for (const Growth& g : Thinned(growths, 3)) {
    Random random;
    const AttentionShape shape{.heads = g.heads, .latent = g.latent, .rope = g.rope};
    const Story s = RandomStory(random, shape, g.prefix, g.nodes, true);
    std::vector<std::vector<uint32_t>> expected;
    for (const int sequences : Thinned(g.sequences, 2)) {
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

// Every way to divide a call, by tables with room for more sequences and longer prefixes than are there.
TEST_F(TreeDivisionCudaTest, ARowHasTheSameBitsWhateverTheTableHasRoomFor) {
  struct Room {
    int64_t sequences;
    int64_t pages;
  };
  struct Sizes {
    int64_t heads;
    int64_t latent;
    int64_t rope;
    int nodes;
  };
  int processors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  std::set<Division> divisions;
  for (const Sizes& z :
       {Sizes{8, 512, 64, 9}, Sizes{8, 512, 64, 16}, Sizes{24, 512, 64, 4}, Sizes{64, 512, 64, 3},
        Sizes{8, 128, 32, 9}, Sizes{8, 128, 32, 16}, Sizes{24, 128, 32, 4}, Sizes{64, 128, 32, 3}}) {
    Random random;
    const AttentionShape shape{.heads = z.heads, .latent = z.latent, .rope = z.rope};
    const Story s = RandomStory(random, shape, 330, z.nodes, true);
    std::vector<std::vector<uint32_t>> expected;
    for (const Room& room :
         {Room{1, 8}, Room{1, 1}, Room{1, 32}, Room{1, 600}, Room{3, 600}, Room{64, 600}}) {
      AttentionCase c(shape, PagesFor(s.prefix() + s.nodes()));
      AddTree(c, s);
      c.WidenTable(room.sequences, room.pages);
      const int64_t pages = std::max(room.pages, PagesFor(s.prefix() + s.nodes()));
      divisions.insert(
          DivisionOf({.rows = c.rows(),
                      .heads = z.heads,
                      .sequences = room.sequences,
                      .blocks = pages,
                      .parts = CudaScratch::Of(c.rows(), z.heads, z.latent, z.rope, pages).parts},
                     processors));
      const auto rows = RowsOnDevice(c, DType::kBF16, stream());
      if (expected.empty()) {
        expected = rows;
      }
      ASSERT_EQ(rows, expected) << "heads " << z.heads << " latent " << z.latent << " room for "
                                << room.sequences << " sequences of " << room.pages << " pages";
    }
  }
  EXPECT_EQ(divisions, (std::set<Division>{{.by_rows = true},
                                           {false, 16, 16},
                                           {false, 32, 16},
                                           {false, 48, 16},
                                           {false, 48, 48},
                                           {false, 64, 16},
                                           {false, 64, 64}}));
}

// Calls by rows ask for more or less shared memory by their size, but a kernel has one limit for all threads.
TEST_F(TreeDivisionCudaTest, ThreadsThatAttendAtOnceWithDifferentSizesGetTheBitsOfOneThread) {
  const int calls = Small(200, 3);
  Random random;
  const AttentionShape shape{.heads = 8, .latent = 512, .rope = 64};
  const Story s = RandomStory(random, shape, 200, 5, true);
  std::vector<std::vector<std::vector<uint32_t>>> alone;
  const auto rows_of = [&](int sequences, StreamView at) {
    AttentionCase c(shape, sequences * PagesFor(s.prefix() + s.nodes()));
    for (int i = 0; i < sequences; ++i) {
      AddTree(c, s);
    }
    return RowsOnDevice(c, DType::kBF16, at);
  };
  int processors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  const int64_t pages = PagesFor(s.prefix() + s.nodes());
  int many = 1;  // more blocks than processors, still by rows
  const auto blocks = [&] {
    return many * s.nodes() * CudaScratch::Of(1, shape.heads, shape.latent, shape.rope, pages).parts;
  };
  while (blocks() <= processors) {
    ++many;
  }
  ASSERT_TRUE(DivisionOf({.rows = many * s.nodes(),
                          .heads = shape.heads,
                          .sequences = many,
                          .blocks = pages,
                          .parts = blocks() / (many * s.nodes())},
                         processors)
                  .by_rows);
  const std::vector<int> sizes = {1, many};
  for (const int sequences : sizes) {
    alone.push_back(rows_of(sequences, stream()));
  }
  std::vector<std::thread> threads;
  for (size_t t = 0; t < sizes.size(); ++t) {
    threads.emplace_back([&, t] {
      cudaStream_t own = nullptr;
      EXPECT_EQ(cudaStreamCreate(&own), cudaSuccess);
      for (int i = 0; i < calls && !HasFailure(); ++i) {
        EXPECT_EQ(rows_of(sizes[t], {.threads = nullptr, .cuda_stream = own}), alone[t]) << "call " << i;
      }
      EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace arborist::kernels
