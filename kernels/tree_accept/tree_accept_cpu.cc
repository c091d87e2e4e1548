#include "common/base/status_macros.h"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels::cpu {
namespace {

// One pass: a child stands after its parent, so the walk never looks back, and it ends with the list whatever
// the pointers say.
void AcceptOne(const TreeAcceptArgs& args, int64_t tree) {
  const int64_t begin = args.tree_begin[tree];
  const int64_t end = TreeAcceptEnd(args, tree);
  bool valid = begin >= 0 && begin < end && end <= args.token.size && end - begin <= kTreeAcceptMaxNodes &&
               args.parent[begin] == -1;
  int32_t current = 0;
  int32_t length = 0;
  if (valid) {
    args.path[begin] = 0;
    length = 1;
    for (int32_t node = 1; node < end - begin; ++node) {
      const int32_t parent = args.parent[begin + node];
      valid &= parent >= 0 && parent < node;
      if (parent == current && args.token[begin + node] == args.chosen[begin + current]) {
        current = node;
        args.path[begin + length++] = node;
      }
    }
  }
  args.error[tree] = valid ? 0 : 1;
  args.path_length[tree] = valid ? length : 0;
  args.bonus[tree] = valid ? args.chosen[begin + current] : TokenId{-1};
}

}  // namespace

absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTreeAccept(args));
  for (int64_t tree = 0; tree + 1 < args.tree_begin.size; ++tree) {
    AcceptOne(args, tree);
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
