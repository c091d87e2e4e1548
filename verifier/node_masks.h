#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"

namespace arborist::verifier {

// One reason why not every token may follow the text of a sequence: ids that its owner allows, or a form that
// its text must have. Several of one sequence hold together. Belongs to one sequence; used by one thread at a
// time.
class NodeMasks {
 public:
  virtual ~NodeMasks() = default;

  // These have joined the output, after all that joined before: output_so_far, then what each round commits,
  // which may be cut short of the accepted path.
  virtual void Commit(std::span<const TokenId> tokens) = 0;

  // What may be chosen after each node of a tree whose root, node 0, is the last committed token (of the
  // prompt, while there is no output): a node's own token and its ancestors' up to the root are its output
  // after what was committed. parent[0] = -1, parent[i] < i.
  //
  // mask[i] = bits of ids, id v is bit v % 32 of word v / 32, set = allowed, as many words as hold the
  // vocabulary; or null: every token may follow. A node that is not allowed to be there is never accepted:
  // null will do. The same words for several nodes cost once. They stay as they are until the next call of
  // either kind.
  virtual void OfTree(std::span<const TokenId> token, std::span<const int32_t> parent,
                      std::span<const uint32_t*> mask) = 0;
};

}  // namespace arborist::verifier
