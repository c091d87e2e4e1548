#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/ids.h"
#include "kernels/logit_controls/logit_controls.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "verifier/step_batch.h"
#include "verifier/step_runner.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// How many sequences of a step may have the longest history there is: an entry for each id, or for each
// position and bias. Shorter ones, which most are, share the room, so that a step of very many sequences does
// not take gigabytes for what hardly ever comes.
inline constexpr int kFullHistories = 32;

// The most that the lists of a controlled step hold: so much that every step within a StepCapacity fits whose
// sequences' histories have at most `history_entries` together, which the scheduler counts.
struct ControlCapacity {
  ControlCapacity(const StepCapacity& step, int64_t vocabulary);

  int64_t vocabulary;
  int64_t mask_words;  // of one mask
  int64_t history_entries;
  int64_t entries;  // those and what the rows add
  int64_t masks;
};

// Where the lists lie, in host memory. Rows are those with logits.
struct ControlArrays {
  kernels::RowControls* row = nullptr;            // [rows]
  kernels::SequenceControls* sequence = nullptr;  // [trees]
  TokenId* forced = nullptr;                      // [rows] whose log-probability is wanted; -1: the chosen's
  kernels::TopKParams* top = nullptr;             // [rows] as streams of depth 1; k = 0: no top list
  int32_t* top_count = nullptr;                   // [rows] k again
  kernels::LogitEntry* entry = nullptr;           // [ControlCapacity::entries]
  uint32_t* mask = nullptr;                       // [ControlCapacity::masks, mask_words]
};

// How much of the last two a step fills.
struct ControlSizes {
  int64_t entries = 0;
  int64_t masks = 0;
};

// Whether a step needs them: a tree has controls, or a chunk is scored.
bool IsControlled(std::span<const StepTree> trees, std::span<const StepChunk> chunks);

// What a row of no controls has: it is copied, and nothing is told of it.
kernels::TopKParams TopListParams(int32_t k);

// Writes the lists of a step: what each node's own path adds to its sequence's history, and which mask it
// has.
class ControlLists {
 public:
  // Allocates; Fill does not.
  explicit ControlLists(const ControlCapacity& capacity);

  // `batch` is the step as FillStep made it.
  ControlSizes Fill(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                    const StepBatch& batch, const ControlArrays& to);

 private:
  void FillTree(int index, const StepTree& tree, const StepBatch& batch);
  void FillEntries(const StepTree& tree, int node, int32_t position, kernels::RowControls& row);
  void FillMasks(const StepTree& tree, kernels::RowControls* rows);
  int32_t WriteMask(size_t sources, size_t nodes, int node);
  kernels::LogitEntry& Append(kernels::EntryRun& run);

  const ControlCapacity capacity_;
  ControlArrays to_;
  ControlSizes used_;
  std::vector<TokenId> path_;             // of one node, ascending
  std::vector<const uint32_t*> sources_;  // [NodeMasks, nodes] of one tree
};

}  // namespace arborist::verifier
