#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/accepted_moves/accepted_moves.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

struct Step {
  std::vector<int32_t> tree_begin, path, path_length, write_slot;
};

// Trees of up to `max_nodes` nodes with sorted paths, some prompt rows, some padding. `wild`: paths that no
// accept writes (repeated nodes, nodes outside the tree, lengths past it).
Step RandomStep(Random& random, int64_t trees, int64_t max_nodes, bool wild) {
  Step step;
  step.tree_begin = {0};
  for (int64_t tree = 0; tree < trees; ++tree) {
    const auto nodes = static_cast<int32_t>(random.Uniform(0, max_nodes));
    const auto length = static_cast<int32_t>(random.Uniform(0, nodes));
    std::vector<int32_t> path;
    for (int32_t node = 0; node < nodes; ++node) {
      if (wild) {
        path.push_back(static_cast<int32_t>(random.Uniform(random.Uniform(0, 60) == 0 ? -1 : 0, nodes - 1)));
        path.back() += random.Uniform(0, 60) == 0 ? nodes : 0;
      } else if (static_cast<int32_t>(path.size()) < length) {
        const int64_t spare = nodes - node - (length - static_cast<int64_t>(path.size()));
        if (random.Uniform(0, 2) != 0 || spare == 0) {
          path.push_back(node);
        }
      }
    }
    path.resize(nodes, -1);
    step.path.insert(step.path.end(), path.begin(), path.end());
    step.path_length.push_back(wild && random.Uniform(0, 5) == 0 ? nodes + 100 : length);
    step.tree_begin.push_back(step.tree_begin.back() + nodes);
  }
  const int64_t rows = step.tree_begin.back() + random.Uniform(0, 300);
  step.path.resize(rows, 3);
  step.write_slot.resize(rows);
  std::iota(step.write_slot.begin(), step.write_slot.end(), 1000);
  std::shuffle(step.write_slot.begin(), step.write_slot.end(), random.engine());
  for (int64_t row = rows - random.Uniform(0, 20); row < rows; ++row) {
    if (row >= step.tree_begin.back()) {
      step.write_slot[row] = -1;
    }
  }
  return step;
}

class AcceptedMovesCudaTest : public CudaTest {
 protected:
  void ExpectTheOracles(const Step& step) {
    const auto rows = static_cast<int64_t>(step.write_slot.size());
    std::vector<int32_t> from(rows, -7), to(rows, -7), feature_slot(rows, -7);
    const auto view = [](const std::vector<int32_t>& v) {
      return View1<const int32_t>{v.data(), static_cast<int64_t>(v.size())};
    };
    ASSERT_TRUE(reference::AcceptedMoves({view(step.tree_begin),
                                          view(step.path),
                                          view(step.path_length),
                                          view(step.write_slot),
                                          {from.data(), rows},
                                          {to.data(), rows},
                                          {feature_slot.data(), rows}},
                                         {})
                    .ok());
    const DeviceArray<int32_t> tree_begin(step.tree_begin), path(step.path), path_length(step.path_length),
        write_slot(step.write_slot);
    const std::vector<int32_t> poison(rows, -7);
    const DeviceArray<int32_t> got_from(poison), got_to(poison), got_feature(poison);
    ASSERT_TRUE(
        cuda::AcceptedMoves({tree_begin.const_view(), path.const_view(), path_length.const_view(),
                             write_slot.const_view(), got_from.view(), got_to.view(), got_feature.view()},
                            stream())
            .ok());
    EXPECT_EQ(got_from.Read(), from);
    EXPECT_EQ(got_to.Read(), to);
    EXPECT_EQ(got_feature.Read(), feature_slot);
  }
};

TEST_F(AcceptedMovesCudaTest, EveryStepEqualsTheOracle) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t trees : {0, 1, 2, 31, 33, 64, 256}) {
    for (const int64_t max_nodes : {1, 9, 33, 256}) {
      for (const bool wild : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << trees << " trees of up to " << max_nodes << (wild ? ", wild" : ""));
        ExpectTheOracles(RandomStep(random, trees, max_nodes, wild));
      }
    }
  }
}

TEST_F(AcceptedMovesCudaTest, NoRowsAreFine) { ExpectTheOracles({{0, 0}, {}, {0}, {}}); }

}  // namespace
}  // namespace arborist::kernels
