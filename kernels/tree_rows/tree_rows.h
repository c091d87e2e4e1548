#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels {

// Deepest node of a tree below its root: with it, every tree row lies in the tails of its descendants.
inline constexpr int kTreeRowsMaxDepth = 63;
inline constexpr int kTreeRowsMaxNodes = 256;
inline constexpr int32_t kTreeRowsMaxRootPosition = (1 << 30) - 1;

// What tree attention asks of each row, from what an engine has on the device: parents, where each tree's
// root stands, the table from position to slot, and the slots that the rows are written to. A node at depth d
// has position root_position + d; its keys are the committed positions before the root (through the table),
// then its ancestors and itself (through write_slot).
//
// A row becomes padding (sequence 0, position 0, prefix_blocks 0, tail_count 0) when it belongs to no node:
// behind the last tree, or past `nodes` in its tree's span; and when it cannot be a node: its own write_slot
// is negative, it or an ancestor has a parent outside [0, own index), its index is kTreeRowsMaxNodes or more,
// it lies deeper than kTreeRowsMaxDepth, its root's position is outside [0, kTreeRowsMaxRootPosition] or its
// table_row outside the table. Nothing outside the arrays is read, whatever the integers say; a
// position past the table has slot -1.
struct TreeRowsArgs {
  View1<const int32_t>
      tree_begin;              // [trees + 1] first row of each tree, ascending; rows behind the last: padding
  View1<const int32_t> nodes;  // [trees] how many rows of its span are a tree's nodes; may be empty: all
  View1<const int32_t> parent;         // [rows] index inside the tree, -1 for its root
  View1<const int32_t> root_position;  // [trees] position of the root = committed keys before it
  View1<const int32_t> table_row;      // [trees] the tree's row of page_table; may be empty: tree i has row i
  View2<const int32_t>
      page_table;  // [sequences, pages]: slot of position p = [p / page_rows] * page_rows + p % page_rows
  int32_t page_rows = kPageRows;    // 64, or 1: a table of slots
  View1<const int32_t> write_slot;  // [rows] where the row's K/V lies
  View1<int32_t> sequence;          // [rows] row of page_table
  View1<int32_t> position;          // [rows]
  View1<int32_t> prefix_blocks;     // [rows] PrefixBlocks(position)
  View2<int32_t> tail_slot;         // [rows, kMaxTailKeys], -1 past tail_count
  View1<int32_t> tail_count;        // [rows] position + 1 - 64 * prefix_blocks
};

// Sizes only: the integers are data of the device.
absl::Status ValidateTreeRows(const TreeRowsArgs& args);

namespace reference {
absl::Status TreeRows(const TreeRowsArgs& args, StreamView stream);
}
namespace cuda {
absl::Status TreeRows(const TreeRowsArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
