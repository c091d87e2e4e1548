#include <gtest/gtest.h>

#include <vector>

#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels {
namespace {

using testing::CudaTest;
using testing::DeviceArray;
using testing::Random;

struct Trees {
  std::vector<int32_t> tree_begin = {0};
  std::vector<TokenId> token;
  std::vector<int32_t> parent;
  std::vector<TokenId> chosen;
  std::vector<int32_t> nodes = {};  // empty: every row is a node

  int64_t rows() const { return static_cast<int64_t>(token.size()); }
  int64_t trees() const { return static_cast<int64_t>(tree_begin.size()) - 1; }
};

struct Accepted {
  std::vector<int32_t> path;
  std::vector<int32_t> length;
  std::vector<TokenId> bonus;
  std::vector<int32_t> error;
};

// A few tokens only, so that many children match; a chain now and then.
void AddTree(Random& random, int64_t nodes, Trees& t) {
  const bool chain = random.Uniform(0, 4) == 0;
  for (int32_t i = 0; i < nodes; ++i) {
    t.token.push_back(TokenId{static_cast<int32_t>(random.Uniform(0, 2))});
    t.chosen.push_back(chain ? TokenId{1} : TokenId{static_cast<int32_t>(random.Uniform(0, 2))});
    t.parent.push_back(chain || i == 0 ? i - 1 : static_cast<int32_t>(random.Uniform(0, i - 1)));
    if (chain) {
      t.token.back() = TokenId{1};
    }
  }
  t.tree_begin.push_back(static_cast<int32_t>(t.token.size()));
}

Accepted OnHost(const Trees& t) {
  Accepted a = {.path = std::vector<int32_t>(t.rows()),
                .length = std::vector<int32_t>(t.trees()),
                .bonus = std::vector<TokenId>(t.trees()),
                .error = std::vector<int32_t>(t.trees())};
  EXPECT_TRUE(reference::TreeAccept({.tree_begin = {t.tree_begin.data(), t.trees() + 1},
                                     .token = {t.token.data(), t.rows()},
                                     .parent = {t.parent.data(), t.rows()},
                                     .chosen = {t.chosen.data(), t.rows()},
                                     .path = {a.path.data(), t.rows()},
                                     .path_length = {a.length.data(), t.trees()},
                                     .bonus = {a.bonus.data(), t.trees()},
                                     .error = {a.error.data(), t.trees()},
                                     .nodes = {t.nodes.data(), static_cast<int64_t>(t.nodes.size())}},
                                    {})
                  .ok());
  return a;
}

class TreeAcceptCudaTest : public CudaTest {
 protected:
  Accepted OnDevice(const Trees& t) {
    const DeviceArray<int32_t> tree_begin(t.tree_begin);
    const DeviceArray<TokenId> token(t.token);
    const DeviceArray<int32_t> parent(t.parent);
    const DeviceArray<TokenId> chosen(t.chosen);
    const DeviceArray<int32_t> nodes(t.nodes);
    const DeviceArray<int32_t> path(t.rows());
    const DeviceArray<int32_t> length(t.trees());
    const DeviceArray<TokenId> bonus(t.trees());
    const DeviceArray<int32_t> error(t.trees());
    EXPECT_TRUE(cuda::TreeAccept({.tree_begin = tree_begin.const_view(),
                                  .token = token.const_view(),
                                  .parent = parent.const_view(),
                                  .chosen = chosen.const_view(),
                                  .path = path.view(),
                                  .path_length = length.view(),
                                  .bonus = bonus.view(),
                                  .error = error.view(),
                                  .nodes = nodes.const_view()},
                                 stream())
                    .ok());
    Finish();
    return {path.Read(), length.Read(), bonus.Read(), error.Read()};
  }

  // Returns the number of trees with an error.
  int ExpectTheReferences(const Trees& t) {
    const Accepted want = OnHost(t);
    const Accepted got = OnDevice(t);
    EXPECT_EQ(got.length, want.length);
    EXPECT_EQ(got.bonus, want.bonus);
    EXPECT_EQ(got.error, want.error);
    int errors = 0;
    for (int64_t tree = 0; tree < t.trees(); ++tree) {
      errors += want.error[tree];
      for (int32_t i = 0; i < want.length[tree]; ++i) {
        EXPECT_EQ(got.path[t.tree_begin[tree] + i], want.path[t.tree_begin[tree] + i]) << "tree " << tree;
      }
    }
    return errors;
  }
};

TEST_F(TreeAcceptCudaTest, RandomTreesSomeWithWildPointersGiveTheReferencesResult) {
  Random random;
  SCOPED_TRACE(random.seed());
  int errors = 0;
  for (const int64_t trees : {0, 1, 3, 64, 200}) {
    for (const int64_t most : {1, 2, 64, 129, 256}) {
      Trees t;
      for (int64_t tree = 0; tree < trees; ++tree) {
        AddTree(random, random.Uniform(1, most), t);
        if (random.Uniform(0, 3) == 0) {
          const int64_t wild[] = {0, 1, -1, most, 2147483647, -2147483647 - 1};
          t.parent[random.Uniform(t.tree_begin[tree], t.tree_begin[tree + 1] - 1)] =
              static_cast<int32_t>(wild[random.Uniform(0, 5)]);
        }
      }
      errors += ExpectTheReferences(t);
    }
  }
  EXPECT_GT(errors, 20);
}

TEST_F(TreeAcceptCudaTest, SmallTreesAtAStrideAreAsLongAsTheirNodesSay) {
  Random random;
  SCOPED_TRACE(random.seed());
  Trees t;
  for (int tree = 0; tree < 60; ++tree) {
    AddTree(random, 9, t);
    t.nodes.push_back(static_cast<int32_t>(tree % 20 == 7 ? 2147483647 : random.Uniform(-1, 11)));
  }
  EXPECT_GT(ExpectTheReferences(t), 2);  // those without nodes
}

TEST_F(TreeAcceptCudaTest, CyclesEndInTheErrorFlagAndSpareTheNeighbours) {
  for (const std::vector<int32_t>& parents : std::vector<std::vector<int32_t>>{
           {-1, 2, 1, 0}, {-1, 1, 0, 0}, {-1, 0, 3, 0}, {0, 0, 1, 2}, {3, 0, 1, 2}}) {
    Random random;
    Trees t;
    AddTree(random, 40, t);
    AddTree(random, 4, t);
    AddTree(random, 40, t);
    std::copy(parents.begin(), parents.end(), t.parent.begin() + 40);
    EXPECT_EQ(ExpectTheReferences(t), 1);
  }
}

TEST_F(TreeAcceptCudaTest, BoundsOutsideTheRowsAndTreesTooLargeEndInTheErrorFlag) {
  Random random;
  Trees t;
  AddTree(random, 300, t);
  for (const std::vector<int32_t>& bounds :
       std::vector<std::vector<int32_t>>{{0, 0},
                                         {0, 256},
                                         {0, 257},
                                         {-1, 2},
                                         {299, 301},
                                         {2, 1},
                                         {-2147483647 - 1, 2147483647},
                                         {2147483647, -2147483647 - 1, 5}}) {
    t.tree_begin = bounds;
    ExpectTheReferences(t);
  }
}

}  // namespace
}  // namespace arborist::kernels
