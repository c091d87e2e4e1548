#include "drafter/testing/counting_proposer.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace arborist::drafter::testing {
namespace {

class CountingContext final : public DraftContext {
 public:
  explicit CountingContext(CountingProposer* proposer) : proposer_(proposer) {}

  absl::Status AppendTokens(int32_t first_position, std::span<const TokenId> tokens) override {
    if (first_position != static_cast<int32_t>(tokens_.size())) {
      return absl::FailedPreconditionError("gap");
    }
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }
  absl::Status AppendFeatures(int32_t first_position, int32_t rows,
                              std::span<const BFloat16> features) override {
    if (features.size() != static_cast<size_t>(rows) * 4) {
      return absl::InvalidArgumentError("feature bytes");
    }
    features_end_ = std::max(features_end_, first_position + rows);
    proposer_->feature_rows_ += rows;
    return absl::OkStatus();
  }
  bool Ready() const override {
    return !proposer_->needs_features() || features_end_ + 1 >= static_cast<int32_t>(tokens_.size());
  }
  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    ++proposer_->proposals_;
    proposer_->temperature_ = args.temperature;
    std::this_thread::sleep_for(std::chrono::milliseconds(proposer_->propose_milliseconds_));
    if (proposer_->fail_) {
      return absl::InternalError("the proposer broke");
    }
    TokenTree tree = TokenTree::RootOnly(tokens_.back());
    const bool chain = args.shape == TreeShape::kChain;
    int32_t at = 0;
    while (tree.nodes() <= args.nodes) {
      const int32_t parent = at;
      const TokenId right{(Raw(tree.token[parent]) + 1) % 1000};
      at = tree.nodes();
      Add(tree, right, parent);
      if (!chain && tree.nodes() <= args.nodes) {
        Add(tree, TokenId{(Raw(right) + 500) % 1000}, parent);
      }
    }
    return tree;
  }

 private:
  void Add(TokenTree& tree, TokenId token, int32_t parent) {
    const float step = proposer_->malformed_ ? 0.5f : -0.125f;
    tree.token.push_back(token);
    tree.parent.push_back(parent);
    tree.score.push_back(tree.score.back() + step);
  }

  CountingProposer* proposer_;
  std::vector<TokenId> tokens_;
  int32_t features_end_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DraftContext>> CountingProposer::NewContext() {
  return std::make_unique<CountingContext>(this);
}

}  // namespace arborist::drafter::testing
