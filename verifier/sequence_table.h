#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tree/token_tree.h"
#include "verifier/constraint_masks.h"
#include "verifier/control_state.h"
#include "verifier/kv_cache.h"
#include "verifier/tree_masks.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

enum class Phase { kNew, kQueued, kPrefill, kReady };

// The outstanding Tree or Decode.
struct Round {
  bool active = false;
  bool begun = false;  // a step has seen it
  int64_t number = 0;
  TokenTree tree;                    // of the next step; root only for a Decode
  int decode_left = 0;               // tokens a Decode may still give; 0 for a Tree
  bool until_drafting_pays = false;  // of a Decode
  int cut_nodes = 0;
  // Under a constraint: no step sees the tree before its masks are there.
  std::shared_ptr<TreeMasks> masks;
  bool masks_missing = false;
  std::chrono::steady_clock::time_point submitted;
};

// One Open, from its queueing to its OnClosed. While `round.active` the tree belongs to the step thread, and
// so do pages, computed, log_probs and features; the rest is guarded by the verifier's mutex. Only the step
// thread appends to `tokens`, under that mutex, so it may read them without.
struct Sequence {
  SequenceHandle handle = 0;
  SequenceSink* sink = nullptr;
  OpenArgs args;                // prompt and output_so_far have moved to `tokens`
  std::vector<TokenId> tokens;  // the last one is the root
  int64_t output_limit = 0;     // size of `tokens` at max_tokens
  int64_t worst_pages = 0;
  // Null: its steps are plain. The step thread's, after Open.
  std::unique_ptr<ControlState> controls;

  Phase phase = Phase::kNew;
  std::chrono::steady_clock::time_point opened;  // since when it waits; that of the first epoch
  int passed_by = 0;                             // times a later one was admitted first
  uint64_t ticket = 0;                           // order among those that wait for a step
  Round round;
  bool finish_requested = false;
  ConstraintMasks* constraint = nullptr;  // one of the controls' masks; null: none
  std::optional<absl::Status> end;        // why it closes at the next boundary; the first reason stays
  SequenceHandle successor = 0;           // of a higher epoch; takes the pages

  bool follows_budget = false;  // AUTO, and its owner has not shown that it does otherwise
  // What its owner was told last, and when: the step thread's.
  int told_budget = 0;
  bool told_after_tree = false;
  std::chrono::steady_clock::time_point told_at;

  SequencePages pages;
  int32_t computed = 0;        // positions whose K/V is in the pages
  PromptLogProbs log_probs;    // in prefill, known for as many rows as are computed, or for all
  KvInheritance inherited;     // until admission
  int32_t features_begin = 0;  // positions still to deliver on attach: [begin, end)
  int32_t features_end = 0;

  bool WaitsForStep() const { return phase == Phase::kReady && round.active && !round.masks_missing; }
  int32_t root_position() const { return static_cast<int32_t>(tokens.size()) - 1; }
  void End(absl::Status status) {
    if (!end.has_value()) {
      end = std::move(status);
    }
  }
};

// What another sample of the same request has of a sequence's text.
struct SharedPrefix {
  const Sequence* from = nullptr;  // null: nothing
  int64_t pages = 0;               // whole ones whose K/V is there
  int32_t common_tokens = 0;
  bool grows = false;  // there are more when some sample's prefill has ended
};

// All open sequences, by handle (ascending: in order of their Open) and by key. Not thread-safe.
class SequenceTable {
 public:
  explicit SequenceTable(int max_queue) : max_queue_(max_queue) {}

  // A higher epoch for a key marks the older sequence ABORTED and becomes its successor; the same or a lower
  // one is FAILED_PRECONDITION. RESOURCE_EXHAUSTED when max_queue sequences wait, takeovers not counted.
  absl::StatusOr<Sequence*> Insert(std::unique_ptr<Sequence> sequence);
  Sequence* Find(SequenceHandle handle);  // null if it has closed
  bool IsOpen(const SequenceKey& key) const { return by_key_.contains({key.request_id, key.sample_index}); }
  // Takes the sequence out; its pages, or those it was to inherit, go to its successor if there is one.
  std::unique_ptr<Sequence> Remove(SequenceHandle handle);
  // Of an admitted one with the longest common text, as far as this one may take it.
  SharedPrefix FindSharedPrefix(const Sequence& sequence) const;

  const std::map<SequenceHandle, std::unique_ptr<Sequence>>& all() const { return by_handle_; }

 private:
  using Key = std::pair<std::string, uint32_t>;

  int max_queue_;
  SequenceHandle next_handle_ = 1;
  std::map<SequenceHandle, std::unique_ptr<Sequence>> by_handle_;
  std::map<Key, SequenceHandle> by_key_;  // the newest epoch
};

}  // namespace arborist::verifier
