#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "drafter/proposer.h"

namespace arborist::tests {

// Drafters for the gate: they need no features and draft from nothing but the committed tokens and a random
// stream.
enum class Hostility {
  kRandom,     // a random shape of random tokens
  kStale,      // the tree of an earlier round under the new root
  kMaximal,    // as many nodes as the request allows, alternately one deep chain and one flat star
  kMalformed,  // each tree breaks one rule of the wire; the rule changes from round to round
};

// The same seed gives the same trees for the same committed tokens.
std::unique_ptr<drafter::Proposer> NewHostileProposer(Hostility hostility, int vocabulary, uint64_t seed);

// Knows what plain decoding writes (prompt + output) and plants the true path at random ranks and depths
// among wrong siblings, so a tree accepts paths that are neither the first-candidate spine nor contiguous.
std::unique_ptr<drafter::Proposer> NewReplayProposer(std::vector<TokenId> truth, int vocabulary,
                                                     uint64_t seed);

}  // namespace arborist::tests
