#include "kernels/tree_accept/tree_accept.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/tree_accept/check_size.h"

namespace arborist::kernels {

absl::Status ValidateTreeAccept(const TreeAcceptArgs& args) {
  if (args.tree_begin.size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tree_begin.size=", args.tree_begin.size, ", expected trees + 1"));
  }
  const int64_t trees = args.tree_begin.size - 1;
  const int64_t rows = args.token.size;
  RETURN_IF_ERROR(CheckSize("parent", args.parent.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("chosen", args.chosen.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("path", args.path.size, "row", rows));
  RETURN_IF_ERROR(CheckSize("path_length", args.path_length.size, "tree", trees));
  RETURN_IF_ERROR(CheckSize("bonus", args.bonus.size, "tree", trees));
  if (args.nodes.size != 0) {
    RETURN_IF_ERROR(CheckSize("nodes", args.nodes.size, "tree", trees));
  }
  return CheckSize("error", args.error.size, "tree", trees);
}

}  // namespace arborist::kernels
