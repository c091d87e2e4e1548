#include "common/base/status_macros.h"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels::reference {
namespace {

bool PointersAreInRange(const TreeAcceptArgs& args, int64_t begin, int64_t end) {
  if (begin < 0 || end <= begin || end > args.token.size || end - begin > kTreeAcceptMaxNodes ||
      args.parent[begin] != -1) {
    return false;
  }
  for (int64_t node = 1; node < end - begin; ++node) {
    if (args.parent[begin + node] < 0 || args.parent[begin + node] >= node) {
      return false;
    }
  }
  return true;
}

// -1 when no child of `node` carries `token`.
int64_t FindChild(const TreeAcceptArgs& args, int64_t begin, int64_t end, int64_t node, TokenId token) {
  for (int64_t child = 1; child < end - begin; ++child) {
    if (args.parent[begin + child] == node && args.token[begin + child] == token) {
      return child;
    }
  }
  return -1;
}

}  // namespace

absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTreeAccept(args));
  for (int64_t tree = 0; tree + 1 < args.tree_begin.size; ++tree) {
    const int64_t begin = args.tree_begin[tree];
    const int64_t end = TreeAcceptEnd(args, tree);
    args.path_length[tree] = 0;
    args.bonus[tree] = TokenId{-1};
    args.error[tree] = PointersAreInRange(args, begin, end) ? 0 : 1;
    if (args.error[tree] != 0) {
      continue;
    }
    for (int64_t node = 0; node >= 0;) {
      args.path[begin + args.path_length[tree]++] = static_cast<int32_t>(node);
      args.bonus[tree] = args.chosen[begin + node];
      node = FindChild(args, begin, end, node, args.chosen[begin + node]);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
