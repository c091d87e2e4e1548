#include "tests/exactness/hostile_proposers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace arborist::tests {
namespace {

using drafter::DraftContext;
using drafter::ProposeArgs;
using drafter::Proposer;
using drafter::TreeShape;

constexpr int kDepthLimit = 16;

// A tree under construction: distinct siblings by construction, scores by list position.
class Builder {
 public:
  explicit Builder(TokenId root) : tree_(TokenTree::RootOnly(root)), depth_{0} {}

  // Returns the new node's index, or -1 when the parent already has this child or is too deep.
  int Add(int parent, TokenId token, int depth_limit) {
    if (depth_[parent] >= depth_limit || !children_.emplace(parent, Raw(token)).second) {
      return -1;
    }
    tree_.token.push_back(token);
    tree_.parent.push_back(parent);
    tree_.score.push_back(-0.125f * static_cast<float>(tree_.nodes() - 1));
    depth_.push_back(depth_[parent] + 1);
    return tree_.nodes() - 1;
  }

  int depth(int node) const { return depth_[node]; }
  const TokenTree& tree() const { return tree_; }
  TokenTree Take() { return std::move(tree_); }

 private:
  TokenTree tree_;
  std::vector<int> depth_;
  std::set<std::pair<int, int32_t>> children_;
};

// The part all contexts share: the committed tokens.
class TokenContext : public DraftContext {
 public:
  TokenContext(int vocabulary, uint64_t seed) : vocabulary_(vocabulary), random_(seed) {}

  absl::Status AppendTokens(int32_t first_position, std::span<const TokenId> tokens) override {
    if (first_position != static_cast<int32_t>(committed_.size())) {
      return absl::FailedPreconditionError(
          absl::StrCat("first_position=", first_position, ", expected ", committed_.size()));
    }
    committed_.insert(committed_.end(), tokens.begin(), tokens.end());
    return absl::OkStatus();
  }
  absl::Status AppendFeatures(int32_t, int32_t, std::span<const BFloat16>) override {
    return absl::OkStatus();
  }
  bool Ready() const override { return !committed_.empty(); }

 protected:
  int Draw(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  TokenId DrawToken() { return TokenId{Draw(vocabulary_)}; }
  TokenId root() const { return committed_.back(); }

  TokenTree RandomTree(const ProposeArgs& args) {
    Builder builder(root());
    for (int attempts = 0; builder.tree().nodes() <= args.nodes && attempts < 50 * args.nodes; ++attempts) {
      const int last = builder.tree().nodes() - 1;
      const int parent = args.shape == TreeShape::kChain ? last : Draw(last + 1);
      builder.Add(parent, DrawToken(), kDepthLimit);
    }
    return builder.Take();
  }

  int vocabulary_;
  std::mt19937_64 random_;
  std::vector<TokenId> committed_;
};

class RandomContext : public TokenContext {
 public:
  using TokenContext::TokenContext;
  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override { return RandomTree(args); }
};

class StaleContext : public TokenContext {
 public:
  using TokenContext::TokenContext;
  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    if (previous_.nodes() != args.nodes + 1) {
      previous_ = RandomTree(args);
    }
    TokenTree tree = previous_;
    tree.token[0] = root();
    if (Draw(3) == 0) {
      previous_ = RandomTree(args);
    }
    return tree;
  }

 private:
  TokenTree previous_;
};

class MaximalContext : public TokenContext {
 public:
  using TokenContext::TokenContext;
  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    Builder builder(root());
    deep_ = !deep_;
    for (int attempts = 0; builder.tree().nodes() <= args.nodes && attempts < 50 * args.nodes; ++attempts) {
      const int last = builder.tree().nodes() - 1;
      const bool chain = args.shape == TreeShape::kChain || (deep_ && builder.depth(last) < kMaxTreeDepth);
      builder.Add(chain ? last : Draw(std::min(last + 1, 4)), DrawToken(), kMaxTreeDepth);
    }
    return builder.Take();
  }

 private:
  bool deep_ = false;
};

class MalformedContext : public TokenContext {
 public:
  using TokenContext::TokenContext;
  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    TokenTree tree = RandomTree(args);
    const int node = 1 + Draw(std::max(1, tree.nodes() - 1));
    Check(tree.nodes() >= 2, "a malformed tree needs a drafted node");
    switch (Draw(9)) {
      case 0:
        tree.parent[node] = node;
        break;
      case 1:
        tree.parent[node] = -1;
        break;
      case 2:
        tree.token[0] = TokenId{(Raw(tree.token[0]) + 1) % vocabulary_};
        break;
      case 3:
        tree.token[node] = TokenId{vocabulary_};
        break;
      case 4:
        tree.token[node] = TokenId{-1};
        break;
      case 5:
        tree.score[node] = std::numeric_limits<float>::quiet_NaN();
        break;
      case 6:
        tree.score[node] = 1.0f;
        break;
      case 7:
        tree.parent[0] = 0;
        break;
      default:
        tree.score[0] = -1.0f;
        break;
    }
    return tree;
  }
};

class ReplayContext : public TokenContext {
 public:
  ReplayContext(const std::vector<TokenId>& truth, int vocabulary, uint64_t seed)
      : TokenContext(vocabulary, seed), truth_(truth) {}

  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    const int known = static_cast<int>(truth_.size() - std::min(truth_.size(), committed_.size()));
    const int planted = Draw(std::min({known, args.nodes, kDepthLimit}) + 1);
    Builder builder(root());
    int spine = 0;  // deepest node on the true path so far
    int left = args.nodes;
    for (int attempts = 0; left > 0 && attempts < 100 * args.nodes; ++attempts) {
      const int missing = planted - builder.depth(spine);
      // The last free places belong to the true path; before that a true node comes at a random moment.
      const bool chain = args.shape == TreeShape::kChain;  // a wrong node would end it
      const bool extend = missing > 0 && (chain || missing >= left || Draw(left) < missing);
      if (extend) {
        spine = builder.Add(spine, TruthAfter(builder.depth(spine)), kDepthLimit);
        Check(spine > 0, "the true child is never added as a wrong one");
        on_path_.push_back(spine);
        --left;
      } else {
        const int last = builder.tree().nodes() - 1;
        left -= AddWrong(builder, chain ? last : Draw(last + 1)) ? 1 : 0;
      }
    }
    on_path_.clear();
    return builder.Take();
  }

 private:
  // The token that plain decoding writes `depth + 1` after the root.
  TokenId TruthAfter(int depth) const { return truth_[committed_.size() + depth]; }

  bool AddWrong(Builder& builder, int parent) {
    const TokenId token = DrawToken();
    const bool true_parent =
        parent == 0 || std::find(on_path_.begin(), on_path_.end(), parent) != on_path_.end();
    const size_t next = committed_.size() + builder.depth(parent);
    if (true_parent && next < truth_.size() && truth_[next] == token) {
      return false;
    }
    return builder.Add(parent, token, kDepthLimit) > 0;
  }

  const std::vector<TokenId>& truth_;
  std::vector<int> on_path_;
};

class HostileProposer : public Proposer {
 public:
  HostileProposer(Hostility hostility, int vocabulary, uint64_t seed)
      : hostility_(hostility), vocabulary_(vocabulary), seed_(seed) {}

  absl::StatusOr<std::unique_ptr<DraftContext>> NewContext() override {
    const uint64_t seed = seed_ + 1000 * ++contexts_;
    switch (hostility_) {
      case Hostility::kRandom:
        return std::make_unique<RandomContext>(vocabulary_, seed);
      case Hostility::kStale:
        return std::make_unique<StaleContext>(vocabulary_, seed);
      case Hostility::kMaximal:
        return std::make_unique<MaximalContext>(vocabulary_, seed);
      case Hostility::kMalformed:
        return std::make_unique<MalformedContext>(vocabulary_, seed);
    }
    return absl::InternalError("unknown hostility");
  }
  bool needs_features() const override { return false; }
  int feature_window() const override { return 0; }
  std::string projection_hash() const override { return ""; }
  int max_depth() const override { return kMaxTreeDepth; }

 private:
  Hostility hostility_;
  int vocabulary_;
  uint64_t seed_;
  uint64_t contexts_ = 0;
};

class ReplayProposer : public Proposer {
 public:
  ReplayProposer(std::vector<TokenId> truth, int vocabulary, uint64_t seed)
      : truth_(std::move(truth)), vocabulary_(vocabulary), seed_(seed) {}

  absl::StatusOr<std::unique_ptr<DraftContext>> NewContext() override {
    return std::make_unique<ReplayContext>(truth_, vocabulary_, seed_ + 1000 * ++contexts_);
  }
  bool needs_features() const override { return false; }
  int feature_window() const override { return 0; }
  std::string projection_hash() const override { return ""; }
  int max_depth() const override { return kDepthLimit; }

 private:
  std::vector<TokenId> truth_;
  int vocabulary_;
  uint64_t seed_;
  uint64_t contexts_ = 0;
};

}  // namespace

std::unique_ptr<Proposer> NewHostileProposer(Hostility hostility, int vocabulary, uint64_t seed) {
  return std::make_unique<HostileProposer>(hostility, vocabulary, seed);
}

std::unique_ptr<Proposer> NewReplayProposer(std::vector<TokenId> truth, int vocabulary, uint64_t seed) {
  return std::make_unique<ReplayProposer>(std::move(truth), vocabulary, seed);
}

}  // namespace arborist::tests
