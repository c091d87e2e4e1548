#include <random>
#include <vector>

#include "kernels/testing/cuda_test.h"
#include "kernels/tree_rows/tree_rows.h"
#include "kernels/tree_rows/tree_rows_case.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

class TreeRowsCudaTest : public CudaTest {
 protected:
  // The device's answer; outputs are poisoned before.
  TreeRowsOut Run(const TreeRowsCase& c) {
    const DeviceArray<int32_t> tree_begin(c.tree_begin), nodes(c.nodes), parent(c.parent),
        root_position(c.root_position), table_row(c.table_row), page_table(c.page_table),
        write_slot(c.write_slot);
    const DeviceArray<int32_t> sequence(c.rows()), position(c.rows()), prefix_blocks(c.rows()),
        tail_slot(c.rows() * kMaxTailKeys), tail_count(c.rows());
    TreeRowsArgs args = c.Args();
    args.tree_begin.data = tree_begin.data();
    args.nodes.data = nodes.data();
    args.parent.data = parent.data();
    args.root_position.data = root_position.data();
    args.table_row.data = table_row.data();
    args.page_table.data = page_table.data();
    args.write_slot.data = write_slot.data();
    args.sequence = sequence.view();
    args.position = position.view();
    args.prefix_blocks = prefix_blocks.view();
    args.tail_slot = tail_slot.view(c.rows(), kMaxTailKeys);
    args.tail_count = tail_count.view();
    EXPECT_TRUE(cuda::TreeRows(args, stream()).ok());
    return {sequence.Read(), position.Read(), prefix_blocks.Read(), tail_slot.Read(), tail_count.Read()};
  }

  std::random_device::result_type seed_ = std::random_device{}();
  std::mt19937_64 engine_{seed_};
};

// Integers: exact.
TEST_F(TreeRowsCudaTest, SmallAndLargeBatchesEqualTheOracle) {
  SCOPED_TRACE(seed_);
  for (const TreeRowsShape& shape : std::vector<TreeRowsShape>{{1, 1, 64, 0, 0},
                                                               {1, 1, 1, 5, 3},
                                                               {3, 8, 64, 200, 2},
                                                               {3, 33, 1, 400, 0},
                                                               {7, 64, 64, 5000, 9},
                                                               {64, 64, 1, 3000, 1},
                                                               {200, 9, 64, 700, 0},
                                                               {2, 255, 1, 9000, 0},
                                                               {1, 300, 64, 9000, 0}}) {
    const TreeRowsCase c(shape, engine_);
    EXPECT_TRUE(Run(c) == c.Reference()) << shape.trees << " trees of " << shape.nodes << ", pages of "
                                         << shape.page_rows << ", " << shape.positions << " positions";
  }
}

TEST_F(TreeRowsCudaTest, SmallNoTreesArePaddingAloneAndNoRowsAreFine) {
  TreeRowsCase none({0, 1, 64, 100, 0}, engine_);
  EXPECT_TRUE(Run(none).sequence.empty());
  const TreeRowsCase padding({0, 1, 64, 100, 5}, engine_);
  const TreeRowsOut out = Run(padding);
  EXPECT_TRUE(out == padding.Reference());
  EXPECT_EQ(out.tail_count, std::vector<int32_t>(5, 0));
}

TEST_F(TreeRowsCudaTest, SmallBadPointersEndInPaddingAsInTheOracle) {
  SCOPED_TRACE(seed_);
  for (int round = 0; round < 20; ++round) {
    TreeRowsCase c({5, 20, round % 2 == 0 ? 1 : 64, 300, 4}, engine_);
    std::vector<int32_t>* arrays[] = {&c.parent, &c.root_position, &c.table_row, &c.page_table, &c.nodes};
    for (auto* array : arrays) {
      for (int i = 0; i < 3; ++i) {
        (*array)[engine_() % array->size()] = static_cast<int32_t>(engine_());
      }
    }
    c.write_slot[engine_() % c.write_slot.size()] = -1;
    c.tree_begin.back() += round % 3 == 0 ? 100 : 0;  // past the rows: none of that tree
    EXPECT_TRUE(Run(c) == c.Reference());
  }
}

}  // namespace
}  // namespace arborist::kernels
