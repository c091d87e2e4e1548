#include <algorithm>
#include <limits>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/tree_rows/tree_rows.h"

namespace arborist::kernels::reference {
namespace {

struct Tree {
  int64_t begin = 0;  // its rows
  int64_t nodes = 0;
  int32_t root_position = 0;
  int64_t table_row = 0;
};

Tree TreeAt(const TreeRowsArgs& args, int64_t tree) {
  const int64_t begin = args.tree_begin[tree], span = args.tree_begin[tree + 1] - begin;
  return {.begin = begin,
          .nodes = std::min<int64_t>(args.nodes.size == 0 ? span : std::min<int64_t>(span, args.nodes[tree]),
                                     kTreeRowsMaxNodes),
          .root_position = args.root_position[tree],
          .table_row = args.table_row.size == 0 ? tree : args.table_row[tree]};
}

// Indices inside the tree from the root to `node`; empty when the row cannot be a node.
std::vector<int64_t> Path(const TreeRowsArgs& args, const Tree& tree, int64_t node) {
  std::vector<int64_t> path = {node};
  while (path.front() != 0) {
    const int64_t own = path.front(), parent = args.parent[tree.begin + own];
    if (parent < 0 || parent >= own) {
      return {};
    }
    path.insert(path.begin(), parent);
  }
  const bool possible = args.parent[tree.begin] == -1 && args.write_slot[tree.begin + node] >= 0 &&
                        tree.root_position >= 0 && tree.root_position <= kTreeRowsMaxRootPosition &&
                        tree.table_row >= 0 && tree.table_row < args.page_table.rows &&
                        path.size() <= kTreeRowsMaxDepth + 1;
  return possible ? path : std::vector<int64_t>{};
}

int32_t CommittedSlot(const TreeRowsArgs& args, int64_t table_row, int32_t position) {
  const int32_t logical = position / args.page_rows;
  if (logical >= args.page_table.columns) {
    return -1;
  }
  const int32_t page = args.page_table.row(table_row)[logical];
  if (page < 0 || page >= std::numeric_limits<int32_t>::max() / args.page_rows) {
    return -1;
  }
  return page * args.page_rows + position % args.page_rows;
}

void WriteRow(const TreeRowsArgs& args, const Tree& tree, const std::vector<int64_t>& path) {
  const int64_t row = tree.begin + path.back();
  const int32_t position = tree.root_position + static_cast<int32_t>(path.size()) - 1;
  const int32_t blocks = PrefixBlocks(position), first = blocks * kPageRows;
  args.sequence[row] = static_cast<int32_t>(tree.table_row);
  args.position[row] = position;
  args.prefix_blocks[row] = blocks;
  args.tail_count[row] = position + 1 - first;
  for (int32_t key = first; key <= position; ++key) {
    args.tail_slot.row(row)[key - first] = key < tree.root_position
                                               ? CommittedSlot(args, tree.table_row, key)
                                               : args.write_slot[tree.begin + path[key - tree.root_position]];
  }
}

}  // namespace

absl::Status TreeRows(const TreeRowsArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTreeRows(args));
  const int64_t rows = args.parent.size;
  for (int64_t row = 0; row < rows; ++row) {
    args.sequence[row] = 0;
    args.position[row] = 0;
    args.prefix_blocks[row] = 0;
    args.tail_count[row] = 0;
    std::fill_n(args.tail_slot.row(row), kMaxTailKeys, -1);
  }
  for (int64_t i = 0; i + 1 < args.tree_begin.size; ++i) {
    const Tree tree = TreeAt(args, i);
    if (tree.begin < 0 || args.tree_begin[i + 1] > rows) {
      continue;
    }
    for (int64_t node = 0; node < tree.nodes; ++node) {
      const std::vector<int64_t> path = Path(args, tree, node);
      if (!path.empty()) {
        WriteRow(args, tree, path);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
