#include "drafter/round_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"

namespace arborist::drafter {
namespace {

absl::Status Internal(const char* reason, const char* origin, absl::string_view message) {
  return WithOrigin(ErrorWithReason(absl::StatusCode::kInternal, reason, message), origin);
}

}  // namespace

int NodesWanted(const SpeculationRequest& request, const SpeculationOptions& options, int next_budget) {
  switch (request.mode) {
    case SpeculationMode::kAuto:
      return std::min(request.tree_nodes, next_budget);
    case SpeculationMode::kTree:
      return request.tree_nodes;
    case SpeculationMode::kChain:
      return std::min(request.tree_nodes, options.max_depth);
  }
  return 0;
}

ProposeArgs ProposeArgsOf(const SpeculationRequest& request, const SpeculationOptions& options, int nodes) {
  return {.shape = request.mode == SpeculationMode::kChain ? TreeShape::kChain : TreeShape::kTree,
          .nodes = nodes,
          .temperature = options.coupled ? request.temperature : 0,
          .seed = request.seed,
          .sample_index = request.sample_index};
}

int AcceptedNodes(const TokenTree& tree, int verified_nodes, std::span<const TokenId> tokens) {
  const int32_t end = std::min(tree.nodes() - 1, verified_nodes) + 1;
  int32_t at = 0;
  int accepted = 0;
  for (const TokenId token : tokens) {
    int32_t child = at + 1;
    while (child < end && (tree.parent[child] != at || tree.token[child] != token)) {
      ++child;
    }
    if (child >= end) {
      break;
    }
    at = child;
    ++accepted;
  }
  return accepted;
}

RoundTokens TokensOf(const CommittedTokens& committed, const TokenTree* tree, const RoundSeconds& seconds) {
  return {.epoch = committed.epoch,
          .first_position = committed.first_position,
          .tokens = committed.tokens,
          .log_probs = committed.log_probs,
          .top_log_probs = committed.top_log_probs,
          .round = committed.round,
          .accepted = tree != nullptr ? AcceptedNodes(*tree, committed.verified_nodes, committed.tokens) : 0,
          .verified_nodes = committed.verified_nodes,
          .cut_nodes = committed.cut_nodes,
          .seconds = seconds,
          .finish_reason = committed.finish_reason};
}

absl::Status CheckCommitted(const CommittedTokens& committed, int64_t epoch, int64_t round,
                            int32_t next_position) {
  if (committed.epoch != epoch || committed.round != round || committed.first_position != next_position ||
      committed.tokens.empty()) {
    return VerifierFault(absl::StrCat("committed epoch=", committed.epoch, " round=", committed.round,
                                      " first_position=", committed.first_position, " with ",
                                      committed.tokens.size(), " tokens, expected epoch ", epoch, ", round ",
                                      round, ", position ", next_position, " and at least 1 token"));
  }
  return absl::OkStatus();
}

absl::Status VerifierFault(const std::string& message) {
  return Internal(reason::kVerifierFault, kVerifierOrigin, message);
}

absl::Status DrafterFault(const absl::Status& status) {
  return status.ok() ? status : Internal(reason::kDrafterFault, kDrafterOrigin, status.message());
}

bool IsRefusedTree(const absl::Status& status) { return ReasonOf(status) == reason::kBadTree; }

absl::Status RefusedTreeIsOurs(const absl::Status& status) {
  return IsRefusedTree(status) ? Internal(reason::kBadTree, kDrafterOrigin, status.message()) : status;
}

absl::Status StallForEver(VerifierStream& verifier, SpeculationSink& sink) {
  sink.OnState(SpeculationState::kStalled, 0);
  absl::StatusOr<VerifierEvent> event = verifier.Next();
  while (event.ok()) {
    event = verifier.Next();
  }
  return event.status();
}

}  // namespace arborist::drafter
