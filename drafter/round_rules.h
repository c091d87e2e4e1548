#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "drafter/speculation_loop.h"

namespace arborist::drafter {

// The loop's decisions, as functions of values.

// Drafted nodes of the next round; 0: decode plainly. TREE and CHAIN draft whatever it costs.
int NodesWanted(const SpeculationRequest& request, const SpeculationOptions& options, int next_budget);
ProposeArgs ProposeArgsOf(const SpeculationRequest& request, const SpeculationOptions& options, int nodes);

// How many of `tokens` are nodes on one path from the root, of the tree's first `verified_nodes` drafted
// ones: the rest is the target's own token, which may be what a node said that was cut.
int AcceptedNodes(const TokenTree& tree, int verified_nodes, std::span<const TokenId> tokens);

// What the coordinator is told of an answer to `tree`, or to a Decode (null). Features stay behind.
RoundTokens TokensOf(const CommittedTokens& committed, const TokenTree* tree, const RoundSeconds& seconds);

// An answer must be of our epoch and round and go on where the sequence stands; else Internal, origin
// "verifier".
absl::Status CheckCommitted(const CommittedTokens& committed, int64_t epoch, int64_t round,
                            int32_t next_position);

absl::Status VerifierFault(const std::string& message);
// OK stays OK; anything else becomes Internal (DRAFTER_FAULT), origin "drafter".
absl::Status DrafterFault(const absl::Status& status);
// Whether this is the verifier's BAD_TREE.
bool IsRefusedTree(const absl::Status& status);
// The verifier's BAD_TREE is no fault of the request: Internal (BAD_TREE), origin "drafter".
absl::Status RefusedTreeIsOurs(const absl::Status& status);

// Test hook: says nothing more, not even that it lives, until the call is cancelled or the verifier ends it.
absl::Status StallForEver(VerifierStream& verifier, SpeculationSink& sink);

}  // namespace arborist::drafter
