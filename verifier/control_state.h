#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "kernels/logit_controls/logit_controls.h"
#include "verifier/node_masks.h"
#include "verifier/step_controls.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// InvalidArgument names the field of `controls` or `stop_ids` that is at fault.
absl::Status CheckControls(const OpenArgs& args, int64_t vocabulary);

// The controls of one sequence and what they must know of its text, as steps read them. One thread at a time.
class ControlState {
 public:
  // Of checked controls, with the prompt counted and output_so_far committed. Null: nothing acts on the
  // choices and nothing is told of them, so that the sequence's steps are plain. The text never has more than
  // `most_tokens` tokens; then nothing allocates later.
  static std::unique_ptr<ControlState> Create(const OpenArgs& args,
                                              std::vector<std::unique_ptr<NodeMasks>> masks,
                                              int64_t vocabulary, int64_t most_tokens);

  // These have joined the output.
  void Commit(std::span<const TokenId> tokens);

  // For the next step; it stays valid until Commit.
  const StepControls& step() const { return step_; }

 private:
  ControlState() = default;
  kernels::LogitEntry& EntryOf(TokenId token);

  std::vector<kernels::LogitEntry> history_;  // ascending by token
  std::vector<TokenId> stop_ids_;             // ascending
  std::vector<std::unique_ptr<NodeMasks>> masks_;
  std::vector<NodeMasks*> mask_pointers_;
  StepControls step_;
};

}  // namespace arborist::verifier
