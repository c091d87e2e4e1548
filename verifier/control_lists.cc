#include "verifier/control_lists.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/math.h"
#include "common/tree/token_tree.h"
#include "kernels/tree_accept/tree_accept.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

using kernels::EntryRun;
using kernels::LogitEntry;
using kernels::RowControls;

// Of one sequence; more than there are kinds.
constexpr size_t kMostSources = 8;

// What the history says of a token.
LogitEntry EntryOf(std::span<const LogitEntry> history, TokenId token) {
  const auto found = std::lower_bound(
      history.begin(), history.end(), token,
      [](const LogitEntry& entry, TokenId wanted) { return Raw(entry.token) < Raw(wanted); });
  return found != history.end() && found->token == token ? *found : LogitEntry{.token = token};
}

}  // namespace

ControlCapacity::ControlCapacity(const StepCapacity& step, int64_t vocabulary)
    : vocabulary(vocabulary),
      mask_words(CeilDiv(vocabulary, int64_t{32})),
      history_entries(
          std::min(step.max_sequences, kFullHistories) *
          std::min(vocabulary, int64_t{step.max_pages_per_sequence} * kernels::kPageRows + kMaxLogitBiases)),
      entries(history_entries + int64_t{step.max_logits_rows} * (kMaxTreeDepth + kMaxStopIds)),
      masks(step.max_logits_rows) {}

bool IsControlled(std::span<const StepTree> trees, std::span<const StepChunk> chunks) {
  return std::any_of(trees.begin(), trees.end(),
                     [](const StepTree& tree) { return tree.controls != nullptr; }) ||
         std::any_of(chunks.begin(), chunks.end(),
                     [](const StepChunk& chunk) { return !chunk.next.empty(); });
}

kernels::TopKParams TopListParams(int32_t k) { return {.beta = 1, .depths = k > 0 ? 1 : 0, .k = k}; }

ControlLists::ControlLists(const ControlCapacity& capacity) : capacity_(capacity) {
  path_.reserve(kMaxTreeDepth);
  sources_.reserve(kMostSources * kernels::kTreeAcceptMaxNodes);
}

ControlSizes ControlLists::Fill(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                                const StepBatch& batch, const ControlArrays& to) {
  to_ = to;
  used_ = {};
  for (size_t row = 0; row < batch.logits_row.size(); ++row) {
    to.row[row] = RowControls{};
    to.forced[row] = TokenId{-1};
    to.top[row] = TopListParams(0);
    to.top_count[row] = 0;
  }
  for (int i = 0; i < static_cast<int>(trees.size()); ++i) {
    to.sequence[i] = kernels::SequenceControls{};
    if (trees[i].controls != nullptr) {
      FillTree(i, trees[i], batch);
    }
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    std::copy(chunks[i].next.begin(), chunks[i].next.end(), to.forced + batch.first_row[trees.size() + i]);
  }
  return used_;
}

void ControlLists::FillTree(int index, const StepTree& tree, const StepBatch& batch) {
  const StepControls& controls = *tree.controls;
  kernels::SequenceControls& sequence = to_.sequence[index];
  sequence = controls.penalties;
  sequence.entries = {.first = static_cast<int32_t>(used_.entries), .count = 0};
  for (const LogitEntry& entry : controls.history) {
    Append(sequence.entries) = entry;
  }
  const int first = batch.first_row[index], nodes = static_cast<int>(tree.token.size());
  const int32_t k = std::min(controls.top_log_probs, static_cast<int32_t>(capacity_.vocabulary));
  for (int node = 0; node < nodes; ++node) {
    const int row = first + node;
    to_.row[row].sequence = index;
    to_.top[row] = TopListParams(k);
    to_.top_count[row] = k;
    FillEntries(tree, node, batch.position[row], to_.row[row]);
  }
  FillMasks(tree, to_.row + first);
}

// What the node's path below the root and its position say, each token with all that is known of it. Both
// lists ascend.
void ControlLists::FillEntries(const StepTree& tree, int node, int32_t position, RowControls& row) {
  const StepControls& controls = *tree.controls;
  path_.clear();
  for (int32_t i = controls.counts_nodes ? node : 0; i > 0; i = tree.parent[i]) {
    path_.push_back(tree.token[i]);
  }
  std::sort(path_.begin(), path_.end());
  const bool may_stop = position + 1 >= controls.stops_from;
  const std::span<const TokenId> forbidden = may_stop ? std::span<const TokenId>() : controls.stop_ids;
  row.entries = {.first = static_cast<int32_t>(used_.entries), .count = 0};
  auto counted = path_.begin();
  auto stop = forbidden.begin();
  while (counted != path_.end() || stop != forbidden.end()) {
    const TokenId token =
        stop == forbidden.end() || (counted != path_.end() && *counted < *stop) ? *counted : *stop;
    LogitEntry& entry = Append(row.entries) = EntryOf(controls.history, token);
    for (; counted != path_.end() && *counted == token; ++counted) {
      ++entry.output_count;
      entry.occurred = 1;
    }
    for (; stop != forbidden.end() && *stop == token; ++stop) {
      entry.forbidden = 1;
    }
  }
}

void ControlLists::FillMasks(const StepTree& tree, RowControls* rows) {
  const size_t sources = tree.controls->masks.size(), nodes = tree.token.size();
  Check(sources <= kMostSources, "few things mask one sequence");
  sources_.assign(sources * nodes, nullptr);
  for (size_t i = 0; i < sources; ++i) {
    tree.controls->masks[i]->OfTree(tree.token, tree.parent, std::span(sources_).subspan(i * nodes, nodes));
  }
  for (int node = 0; node < static_cast<int>(nodes) && sources > 0; ++node) {
    rows[node].mask = -1;
    // The same words as an earlier node's?
    for (int other = node - 1; other >= 0 && rows[node].mask < 0; --other) {
      bool same = rows[other].mask >= 0;
      for (size_t i = 0; i < sources && same; ++i) {
        same = sources_[i * nodes + static_cast<size_t>(node)] ==
               sources_[i * nodes + static_cast<size_t>(other)];
      }
      rows[node].mask = same ? rows[other].mask : -1;
    }
    if (rows[node].mask < 0) {
      rows[node].mask = WriteMask(sources, nodes, node);
    }
  }
}

// -1 if nothing masks the node.
int32_t ControlLists::WriteMask(size_t sources, size_t nodes, int node) {
  uint32_t* const words = to_.mask + used_.masks * capacity_.mask_words;
  bool masked = false;
  for (size_t i = 0; i < sources; ++i) {
    const uint32_t* source = sources_[i * nodes + static_cast<size_t>(node)];
    if (source == nullptr) {
      continue;
    }
    for (int64_t word = 0; word < capacity_.mask_words; ++word) {
      words[word] = masked ? words[word] & source[word] : source[word];
    }
    masked = true;
  }
  return masked ? static_cast<int32_t>(used_.masks++) : -1;
}

LogitEntry& ControlLists::Append(EntryRun& run) {
  Check(used_.entries < capacity_.entries, "the scheduler counts what the lists of a step hold");
  ++run.count;
  return to_.entry[used_.entries++];
}

}  // namespace arborist::verifier
