#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/tree_rows/tree_rows.h"

namespace arborist::kernels::testing {

struct TreeRowsShape {
  int trees = 1;
  int nodes = 1;  // most nodes of a tree; its span is one row longer
  int page_rows = kPageRows;
  int positions = 256;  // most committed positions before a root
  int padding = 0;      // rows behind the last tree
  bool full = false;    // every tree has `nodes` nodes
};

struct TreeRowsOut {
  std::vector<int32_t> sequence, position, prefix_blocks, tail_slot, tail_count;
  bool operator==(const TreeRowsOut&) const = default;
};

// Random trees over one pool of slots: tables, write slots and table rows in any order.
struct TreeRowsCase {
  TreeRowsShape shape;
  std::vector<int32_t> tree_begin{0}, nodes, parent, root_position, table_row, page_table, write_slot;
  int64_t pages = 0;

  TreeRowsCase(const TreeRowsShape& s, std::mt19937_64& engine) : shape(s) {
    const auto below = [&](int bound) {
      return static_cast<int32_t>(engine() % static_cast<uint64_t>(bound));
    };
    pages = s.positions / s.page_rows + 2;
    for (int tree = 0; tree < s.trees; ++tree) {
      nodes.push_back(s.full ? s.nodes : 1 + below(s.nodes));
      root_position.push_back(below(s.positions + 1));
      table_row.insert(table_row.begin() + below(tree + 1), tree);
      const int span = nodes.back() + below(2);
      const bool chain = below(3) == 0;
      for (int node = 0; node < span; ++node) {
        parent.push_back(node == 0 ? -1 : chain ? node - 1 : below(node));
      }
      tree_begin.push_back(tree_begin.back() + span);
    }
    parent.insert(parent.end(), s.padding, -7);
    for (int64_t i = 0; i < s.trees * pages; ++i) {
      page_table.push_back(below(100000));
    }
    for (size_t row = 0; row < parent.size(); ++row) {
      write_slot.push_back(below(1000000));
    }
  }

  int64_t rows() const { return static_cast<int64_t>(parent.size()); }

  // Without outputs.
  TreeRowsArgs Args() const {
    return {.tree_begin = {tree_begin.data(), shape.trees + 1},
            .nodes = {nodes.data(), shape.trees},
            .parent = {parent.data(), rows()},
            .root_position = {root_position.data(), shape.trees},
            .table_row = {table_row.data(), shape.trees},
            .page_table = {page_table.data(), shape.trees, pages, pages},
            .page_rows = shape.page_rows,
            .write_slot = {write_slot.data(), rows()},
            .sequence = {},
            .position = {},
            .prefix_blocks = {},
            .tail_slot = {},
            .tail_count = {}};
  }

  TreeRowsOut Reference() const {
    TreeRowsOut out;
    for (auto* array : {&out.sequence, &out.position, &out.prefix_blocks, &out.tail_count}) {
      array->assign(rows(), -9);
    }
    out.tail_slot.assign(rows() * kMaxTailKeys, -9);
    TreeRowsArgs args = Args();
    args.sequence = {out.sequence.data(), rows()};
    args.position = {out.position.data(), rows()};
    args.prefix_blocks = {out.prefix_blocks.data(), rows()};
    args.tail_slot = {out.tail_slot.data(), rows(), kMaxTailKeys, kMaxTailKeys};
    args.tail_count = {out.tail_count.data(), rows()};
    const absl::Status status = reference::TreeRows(args, {});
    return status.ok() ? out : TreeRowsOut{};
  }
};

}  // namespace arborist::kernels::testing
