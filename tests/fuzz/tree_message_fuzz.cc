// TokenTree from the wire: the codec loses nothing, and the rules say what rules written anew say.
#include <bit>
#include <cmath>
#include <set>

#include "common/base/check.h"
#include "common/rpc/tree_codec.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/message_mutator.h"

namespace arborist {
namespace {

bool FollowsTheRules(const TokenTree& tree, const TreeLimits& limits) {
  const size_t nodes = tree.token.size();
  if (nodes == 0 || tree.parent.size() != nodes || tree.score.size() != nodes ||
      nodes > static_cast<size_t>(limits.max_budget) + 1 || tree.parent[0] != -1 || tree.score[0] != 0) {
    return false;
  }
  std::set<std::pair<int32_t, int32_t>> children;
  for (size_t i = 1; i < nodes; ++i) {
    if (tree.parent[i] < 0 || static_cast<size_t>(tree.parent[i]) >= i || Raw(tree.token[i]) < 0 ||
        Raw(tree.token[i]) >= limits.vocab_size || !std::isfinite(tree.score[i]) ||
        tree.score[i] > tree.score[i - 1] || !children.emplace(tree.parent[i], Raw(tree.token[i])).second) {
      return false;
    }
    int depth = 0;
    for (int32_t node = static_cast<int32_t>(i); node > 0; node = tree.parent[node]) {
      ++depth;
    }
    if (depth > limits.max_depth) {
      return false;
    }
  }
  return true;
}

void CheckTree(const v1::TokenTree& message, const TreeLimits& limits) {
  const TokenTree tree = DecodeTree(message);
  v1::TokenTree again;
  EncodeTree(tree, again);
  Check(
      again.SerializeAsString() ==
          [&] {
            v1::TokenTree known = message;
            known.DiscardUnknownFields();
            return known.SerializeAsString();
          }(),
      "decoding and encoding loses nothing");

  const TokenId root = tree.token.empty() ? TokenId{0} : tree.token[0];
  const bool valid = ValidateTokenTree(tree, root, limits).ok();
  Check(valid == FollowsTheRules(tree, limits), "a tree is valid by its rules");
  Check(!ValidateTokenTree(tree, TokenId{Raw(root) == 7 ? 8 : 7}, limits).ok() || Raw(root) == 7,
        "another root is refused");
  if (!valid) {
    return;
  }
  const std::vector<int32_t> depth = TreeDepths(tree.parent);
  for (int nodes = tree.nodes(); nodes >= 1; nodes = nodes == 1 ? 0 : std::max(1, nodes - 1 - nodes / 8)) {
    TokenTree prefix = tree;
    CutToPrefix(prefix, nodes);
    Check(prefix.nodes() == nodes && ValidateTokenTree(prefix, root, limits).ok(), "prefixes are trees");
    const std::vector<int32_t> shorter = TreeDepths(prefix.parent);
    Check(std::equal(shorter.begin(), shorter.end(), depth.begin()), "a prefix keeps its depths");
  }
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  v1::TokenTree message;
  if (message.ParseFromArray(data, static_cast<int>(size))) {
    CheckTree(message, {.vocab_size = 1000});
    CheckTree(message, {.vocab_size = 1 << 30, .max_budget = 7, .max_depth = 3});
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  arborist::v1::TokenTree message;
  return arborist::fuzz::MutateMessage(message, data, size, max_size, seed);
}
