#include "verifier/testing/drive.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/check.h"

namespace arborist::verifier {
namespace {

size_t FeatureWidth(const Committed& committed) {
  return committed.feature_rows == 0 ? 0 : committed.features.size() / committed.feature_rows;
}

}  // namespace

std::vector<TokenId> RandomTokens(int count, int vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary))});
  }
  return tokens;
}

OpenArgs MakeOpen(const std::string& request_id, std::vector<TokenId> prompt, int max_tokens,
                  int tree_nodes) {
  OpenArgs args;
  args.key.request_id = request_id;
  args.epoch = 1;
  args.prompt = std::move(prompt);
  args.max_tokens = max_tokens;
  args.tree_nodes = tree_nodes;
  return args;
}

void Append(const Committed& committed, size_t prompt_tokens, Decoded& decoded) {
  Check(committed.first_position == static_cast<int32_t>(prompt_tokens + decoded.tokens.size()),
        "rounds continue one another");
  Check(!committed.tokens.empty() && committed.tokens.size() == committed.log_probs.size(),
        "a round commits a token");
  decoded.tokens.insert(decoded.tokens.end(), committed.tokens.begin(), committed.tokens.end());
  decoded.log_probs.insert(decoded.log_probs.end(), committed.log_probs.begin(), committed.log_probs.end());
  decoded.top_log_probs.insert(decoded.top_log_probs.end(), committed.top_log_probs.begin(),
                               committed.top_log_probs.end());
  decoded.finish = committed.finish_reason;
  decoded.rounds += 1;
  decoded.verified_nodes += committed.verified_nodes;
  decoded.cut_nodes += committed.cut_nodes;
  decoded.compactions += committed.compacted ? 1 : 0;
  decoded.accepted_drafts += static_cast<int>(committed.tokens.size()) - 1;
  const size_t width = FeatureWidth(committed);
  for (int32_t row = 0; row < committed.feature_rows; ++row) {
    const auto begin = committed.features.begin() + static_cast<ptrdiff_t>(row * width);
    decoded.features[committed.feature_position + row].assign(begin, begin + static_cast<ptrdiff_t>(width));
  }
}

Decoded DecodePlain(Verifier& verifier, OpenArgs args) {
  Decoded decoded;
  RecordingSink sink;
  const size_t known = args.prompt.size() + args.output_so_far.size();
  const int max_tokens = args.max_tokens;
  const auto handle = verifier.Open(std::move(args), &sink);
  if (!handle.ok()) {
    decoded.closed = handle.status();
    return decoded;
  }
  if (!verifier.SubmitDecode(*handle, 1, max_tokens).ok()) {
    verifier.Cancel(*handle);  // unless it has ended by itself: the first reason stays
  }
  while (const auto committed = sink.TakeCommitted()) {
    Append(*committed, known, decoded);
  }
  decoded.closed = sink.WaitClosed();
  decoded.prompt_log_probs = sink.prompt_log_probs();
  return decoded;
}

Decoded DecodeTrees(Verifier& verifier, OpenArgs args, const Drafter& drafter) {
  Decoded decoded;
  RecordingSink sink;
  std::vector<TokenId> tokens = args.prompt;
  tokens.insert(tokens.end(), args.output_so_far.begin(), args.output_so_far.end());
  const size_t known = tokens.size();
  const auto handle = verifier.Open(std::move(args), &sink);
  if (!handle.ok()) {
    decoded.closed = handle.status();
    return decoded;
  }
  sink.WaitReady();
  for (int64_t round = 1; decoded.finish == FinishReason::kNone; ++round) {
    const absl::Status submitted = verifier.SubmitTree(*handle, round, drafter(tokens));
    if (!submitted.ok()) {
      verifier.Cancel(*handle);
      (void)sink.WaitClosed();
      decoded.closed = submitted;
      return decoded;
    }
    const auto committed = sink.TakeCommitted();
    if (!committed.has_value()) {
      break;
    }
    Check(committed->round == round && committed->last, "a tree gives one answer");
    Append(*committed, known, decoded);
    tokens.insert(tokens.end(), committed->tokens.begin(), committed->tokens.end());
  }
  decoded.closed = sink.WaitClosed();
  decoded.prompt_log_probs = sink.prompt_log_probs();
  return decoded;
}

TokenTree ReplayDrafter::operator()(std::span<const TokenId> tokens) {
  TokenTree tree = TokenTree::RootOnly(tokens.back());
  std::vector<int> depth = {0};
  std::set<std::pair<int, int32_t>> children;
  const auto add = [&](int parent, TokenId token) {
    if (depth[parent] >= kMaxTreeDepth || !children.emplace(parent, Raw(token)).second) {
      return false;
    }
    tree.token.push_back(token);
    tree.parent.push_back(parent);
    tree.score.push_back(-0.01f * static_cast<float>(tree.score.size()));
    depth.push_back(depth[parent] + 1);
    return true;
  };
  const uint64_t true_share = 1 + random_() % 3;  // of four
  uint64_t true_left = random_() % 8;             // short ones too, so that many rounds are played
  int deepest_true = 0;                           // node that ends the true path
  size_t next = tokens.size();                    // index of its continuation in the truth
  while (tree.nodes() <= nodes_) {
    if (true_left > 0 && next < truth_.size() && random_() % 4 < true_share) {
      if (add(deepest_true, truth_[next])) {
        deepest_true = tree.nodes() - 1;
        ++next;
        --true_left;
        continue;
      }
    }
    const auto parent = static_cast<int>(random_() % static_cast<uint64_t>(tree.nodes()));
    const TokenId token{static_cast<int32_t>(random_() % static_cast<uint64_t>(vocabulary_))};
    // The true continuation comes by the true path only.
    if (parent != deepest_true || next >= truth_.size() || token != truth_[next]) {
      add(parent, token);
    }
  }
  return tree;
}

}  // namespace arborist::verifier
