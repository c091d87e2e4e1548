#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "common/tensor/view.h"
#include "kernels/sample_target/sample_target.h"
#include "verifier/step_batch.h"
#include "verifier/step_controls.h"
#include "verifier/step_size.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// One sequence's tree in a step. K/V of positions [0, root_position) is in its pages.
struct StepTree {
  std::span<const int32_t> page_table;
  int32_t root_position = 0;
  std::span<const TokenId> token;
  std::span<const int32_t> parent;
  kernels::SamplingParams sampling;
  const StepControls* controls = nullptr;  // null: none
};

// One sequence's prompt tokens in a step.
struct StepChunk {
  std::span<const int32_t> page_table;
  int32_t first_position = 0;
  std::span<const TokenId> tokens;
  // Empty, or scored: after each of `tokens` the token whose log-probability is wanted; -1: nobody asks. A
  // scored chunk's rows have logits and count against max_logits_rows. They stand before chunks that are not
  // scored.
  std::span<const TokenId> next = {};
};

// What became of a tree. Spans and views are of host memory and valid until the next Run.
struct TreeOutcome {
  absl::Status status;               // of this tree alone: the model's logits were not finite
  std::span<const int32_t> path;     // accepted nodes, the root (0) first; K/V now at root_position + i
  TokenId bonus{};                   // chosen after the last of the path
  std::span<const float> log_probs;  // [path] of the token chosen after each node of the path, raw logits
  // [path, k] the k most probable tokens after each node of the path, raw logits: descending, ties by id; k
  // as its controls ask for, at most the vocabulary.
  std::span<const TokenLogProb> top_log_probs;
  bool compacted = false;  // the path was not contiguous
};

// What became of a scored chunk. As long valid.
struct ChunkOutcome {
  absl::Status status;               // of this chunk alone: the model's logits were not finite
  std::span<const float> log_probs;  // [tokens] of StepChunk::next, raw logits; anything where it is -1
};

class ShadowVerifier;

// The step, without threads or streams: forward -> sample -> accept -> compact -> features. A row's result
// never depends on what else is in the step. All memory is allocated at the start.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // At most the capacity. An error means that nothing of this step may be used. `meanwhile` is called while
  // the device computes, on the host before it computes; not where an error comes first.
  virtual absl::Status Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                           absl::FunctionRef<void()> meanwhile) = 0;
  absl::Status Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks) {
    return Run(trees, chunks, [] {});
  }
  virtual const TreeOutcome& outcome(int tree) const = 0;
  // Of the chunks that are scored.
  virtual const ChunkOutcome& chunk_outcome(int chunk) const = 0;

  // Copies the features of the first `rows` nodes of a tree's path to `out`, [rows, hidden]. Only with a
  // projection, and until the next Run.
  virtual void CopyPathFeatures(int tree, int32_t rows, BFloat16* out) const = 0;
  // The same of positions [position, position + rows) of any sequence, out of the cache.
  virtual absl::Status ReadFeatures(std::span<const int32_t> page_table, int32_t position, int32_t rows,
                                    BFloat16* out) = 0;

  // From now on some steps are shown to it; it outlives the runner. Outcomes stay the same bytes.
  void Shadow(ShadowVerifier* shadow) { shadow_ = shadow; }
  // Whether the last Run was one of them: it took longer than the step is worth.
  bool shadowed() const { return shadowed_; }

 protected:
  // Draws for the step that begins.
  bool BeginShadow(std::span<const StepTree> trees, std::span<const StepChunk> chunks);

  ShadowVerifier* shadow_ = nullptr;
  bool shadowed_ = false;
};

// All sequences of a step in the order that every runner keeps: trees, scored chunks, other chunks. So rows
// with logits are the first ones.
void FillStep(std::span<const StepTree> trees, std::span<const StepChunk> chunks, StepBatch& batch);

}  // namespace arborist::verifier
