#include "drafter/draft_filter.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace arborist::drafter {
namespace {

// Drafted nodes for each that is wanted, and some more: most candidates of a low rank are dropped.
constexpr int kWider = 4;
constexpr int kMore = 16;
constexpr int32_t kDropped = -1;

}  // namespace

DraftFilter::DraftFilter(std::shared_ptr<const Constraint> constraint, std::span<const TokenId> prompt,
                         std::span<const TokenId> output)
    : constraint_(std::move(constraint)) {
  if (constraint_ != nullptr) {
    state_ = constraint_->Start(prompt);
    Append(output);
  }
}

void DraftFilter::Append(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (state_.has_value()) {
      state_ = constraint_->Advance(*state_, token);
    }
  }
}

ProposeArgs DraftFilter::Wider(const ProposeArgs& args) const {
  ProposeArgs wider = args;
  if (state_.has_value()) {
    wider.shape = TreeShape::kTree;
    wider.nodes = std::min(kWider * args.nodes + kMore, kMaxTreeBudget);
  }
  return wider;
}

TokenTree DraftFilter::Filter(const TokenTree& tree, const ProposeArgs& args) const {
  if (!state_.has_value()) {
    return tree;
  }
  TokenTree kept = TokenTree::RootOnly(tree.token[0]);
  std::vector<std::optional<Constraint::State>> state(static_cast<size_t>(tree.nodes()));
  std::vector<int32_t> place(static_cast<size_t>(tree.nodes()), kDropped);  // in `kept`
  state[0] = state_;
  place[0] = 0;
  for (int node = 1; node < tree.nodes() && kept.nodes() <= args.nodes; ++node) {
    const int32_t parent = tree.parent[node];
    // A chain goes on from its last node only.
    if (place[parent] == kDropped || !state[parent].has_value() ||
        (args.shape == TreeShape::kChain && place[parent] + 1 != kept.nodes())) {
      continue;
    }
    state[node] = constraint_->Advance(*state[parent], tree.token[node]);
    if (!state[node].has_value()) {
      continue;
    }
    place[node] = kept.nodes();
    kept.token.push_back(tree.token[node]);
    kept.parent.push_back(place[parent]);
    kept.score.push_back(tree.score[node]);
    if (constraint_->IsStop(tree.token[node])) {
      state[node].reset();  // nothing comes after it
    }
  }
  return kept;
}

}  // namespace arborist::drafter
