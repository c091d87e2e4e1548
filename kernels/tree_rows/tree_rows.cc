#include "kernels/tree_rows/tree_rows.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/tree_accept/check_size.h"

namespace arborist::kernels {

absl::Status ValidateTreeRows(const TreeRowsArgs& args) {
  if (args.tree_begin.size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree_begin.size=", args.tree_begin.size, ", expected trees + 1"));
  }
  if (args.page_rows != 1 && args.page_rows != kPageRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_rows=", args.page_rows, ", expected 1 or ", kPageRows));
  }
  const int64_t trees = args.tree_begin.size - 1, rows = args.parent.size;
  if (args.nodes.size != 0) {
    RETURN_IF_ERROR(CheckSize("nodes", args.nodes.size, "tree", trees));
  }
  RETURN_IF_ERROR(CheckSize("root_position", args.root_position.size, "tree", trees));
  if (args.table_row.size != 0) {
    RETURN_IF_ERROR(CheckSize("table_row", args.table_row.size, "tree", trees));
  } else if (args.page_table.rows < trees) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_table.rows=", args.page_table.rows, ", expected at least trees=", trees));
  }
  RETURN_IF_ERROR(CheckSize("write_slot", args.write_slot.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("sequence", args.sequence.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("position", args.position.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("prefix_blocks", args.prefix_blocks.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("tail_count", args.tail_count.size, "row", rows));
  if (args.tail_slot.rows != rows || args.tail_slot.columns != kMaxTailKeys) {
    return absl::InvalidArgumentError(absl::StrCat("tail_slot is [", args.tail_slot.rows, ", ",
                                                   args.tail_slot.columns, "], expected [", rows, ", ",
                                                   kMaxTailKeys, "]"));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
