#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// Of a recorded step.
struct StepKind {
  StepSize size;
  bool controlled = false;

  auto operator<=>(const StepKind&) const = default;
};

// What a step on a GPU writes for the host, as pointers into one block.
struct StepOutput {
  int32_t* path = nullptr;          // [rows]
  int32_t* path_length = nullptr;   // [trees]
  TokenId* bonus = nullptr;         // [trees]
  int32_t* accept_error = nullptr;  // [trees]
  float* log_prob = nullptr;        // [logits rows]; of a controlled step [logits rows, kLogProbColumns]
  int32_t* sample_error = nullptr;  // [logits rows]
  TokenId* top = nullptr;           // [logits rows, kMaxTopLogProbs], of a controlled step
  BFloat16* features = nullptr;     // [rows, hidden], of which the rows with logits are copied out
};

// Points `output` into a block at `base` and returns how many bytes of it the host wants. `hidden` of a
// feature row; 0: none.
int64_t PlaceStepOutput(const StepKind& kind, int64_t hidden, std::byte* base, StepOutput& output);
// Of a block that holds the output of every step within the capacity.
int64_t StepOutputBytes(const StepCapacity& capacity, int64_t hidden);

}  // namespace arborist::verifier
