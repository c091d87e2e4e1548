#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tree/token_tree.h"
#include "verifier/testing/recording_sink.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// What came out of one sequence.
struct Decoded {
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;
  std::vector<float> prompt_log_probs;
  std::vector<TokenLogProb> top_log_probs;
  FinishReason finish = FinishReason::kNone;
  int rounds = 0;
  int verified_nodes = 0;
  int cut_nodes = 0;
  int compactions = 0;
  int accepted_drafts = 0;
  std::map<int32_t, std::vector<uint16_t>> features;  // by position, from Committed alone
  absl::Status closed;
};

// The tree to verify next; the last of `tokens` (prompt and output) is its root.
using Drafter = std::function<TokenTree(std::span<const TokenId> tokens)>;

std::vector<TokenId> RandomTokens(int count, int vocabulary, uint64_t seed);
OpenArgs MakeOpen(const std::string& request_id, std::vector<TokenId> prompt, int max_tokens, int tree_nodes);

// Open, then one Decode for everything, or a Tree each round, until it closes. Errors end up in `closed`.
Decoded DecodePlain(Verifier& verifier, OpenArgs args);
Decoded DecodeTrees(Verifier& verifier, OpenArgs args, const Drafter& drafter);

// Adds one round's result to `decoded`; checks that it continues what is there.
void Append(const Committed& committed, size_t prompt_tokens, Decoded& decoded);

// Knows the true text (prompt and output) and plants a stretch of it at random ranks and depths of a tree of
// exactly `nodes` drafted nodes, among wrong siblings, so that paths are accepted that are not contiguous.
class ReplayDrafter {
 public:
  ReplayDrafter(std::vector<TokenId> truth, int vocabulary, int nodes, uint64_t seed)
      : truth_(std::move(truth)), vocabulary_(vocabulary), nodes_(nodes), random_(seed) {}
  TokenTree operator()(std::span<const TokenId> tokens);

 private:
  std::vector<TokenId> truth_;
  int vocabulary_;
  int nodes_;
  std::mt19937_64 random_;
};

}  // namespace arborist::verifier
