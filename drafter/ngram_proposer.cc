#include "drafter/ngram_proposer.h"

#include <algorithm>
#include <queue>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "drafter/ngram_index.h"
#include "drafter/propose_args.h"

namespace arborist::drafter {
namespace {

// Grows a tree node by node in the order of scores. Unlike the shared candidate lists of DFlash, every node
// has its own candidates, since its path is the context.
class TreeGrower {
 public:
  TreeGrower(NgramIndex& index, int budget, int depth_limit, int siblings)
      : index_(index), budget_(budget), depth_limit_(depth_limit), siblings_(siblings) {}

  TokenTree Grow() {
    AddNode(index_.tokens().back(), -1, 0);
    while (tree_.nodes() <= budget_ && !queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      AddNode(candidates_[entry.parent][entry.rank].token, entry.parent, entry.score);
      Push(entry.parent, entry.rank + 1);
    }
    return std::move(tree_);
  }

 private:
  struct Entry {
    double score;
    int parent;
    int rank;  // among the parent's candidates
    bool operator<(const Entry& other) const {
      return std::tuple(-score, parent, rank) > std::tuple(-other.score, other.parent, other.rank);
    }
  };

  void AddNode(TokenId token, int parent, double score) {
    const int node = tree_.nodes();
    tree_.token.push_back(token);
    tree_.parent.push_back(parent);
    tree_.score.push_back(static_cast<float>(score));
    score_.push_back(score);
    depth_.push_back(parent < 0 ? 0 : depth_[parent] + 1);
    candidates_.emplace_back();
    if (depth_[node] < depth_limit_ && node < budget_) {
      path_.resize(depth_[node]);
      for (int at = node, i = depth_[node]; i > 0; at = tree_.parent[at]) {
        path_[--i] = tree_.token[at];
      }
      index_.Candidates(path_, std::min(siblings_, budget_ - node), candidates_[node]);
      Push(node, 0);
    }
  }

  void Push(int parent, int rank) {
    if (rank < static_cast<int>(candidates_[parent].size())) {
      queue_.push({score_[parent] + candidates_[parent][rank].log_prob, parent, rank});
    }
  }

  NgramIndex& index_;
  const int budget_, depth_limit_, siblings_;
  TokenTree tree_;
  std::vector<double> score_;
  std::vector<int> depth_;
  std::vector<std::vector<NgramCandidate>> candidates_;  // [nodes]
  std::vector<TokenId> path_;
  std::priority_queue<Entry> queue_;
};

class NgramContext : public DraftContext {
 public:
  explicit NgramContext(const NgramOptions& options) : options_(options), index_(options.max_history) {}

  absl::Status AppendTokens(int32_t first_position, std::span<const TokenId> tokens) override {
    RETURN_IF_ERROR(CheckAppend(first_position, tokens, length_, options_.vocabulary));
    for (const TokenId token : tokens) {
      index_.Append(token);
    }
    length_ += static_cast<int32_t>(tokens.size());
    return absl::OkStatus();
  }

  absl::Status AppendFeatures(int32_t, int32_t, std::span<const BFloat16>) override {
    return absl::OkStatus();
  }

  bool Ready() const override { return length_ > 0; }

  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    RETURN_IF_ERROR(CheckProposeArgs(args, length_));
    const bool chain = args.shape == TreeShape::kChain;
    const int budget = chain ? std::min(args.nodes, options_.depth_limit) : args.nodes;
    return TreeGrower(index_, budget, options_.depth_limit, chain ? 1 : budget).Grow();
  }

 private:
  const NgramOptions options_;
  NgramIndex index_;
  int32_t length_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NgramProposer>> NgramProposer::Create(const NgramOptions& options) {
  if (options.vocabulary < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary=", options.vocabulary, ", expected at least 1"));
  }
  if (options.max_history < 16 || options.max_history > 1 << 28) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_history=", options.max_history, ", expected 16 to ", 1 << 28));
  }
  if (options.depth_limit < 1 || options.depth_limit > kMaxTreeDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("depth_limit=", options.depth_limit, ", expected 1 to ", kMaxTreeDepth));
  }
  return std::unique_ptr<NgramProposer>(new NgramProposer(options));
}

absl::StatusOr<std::unique_ptr<DraftContext>> NgramProposer::NewContext() {
  return std::make_unique<NgramContext>(options_);
}

}  // namespace arborist::drafter
