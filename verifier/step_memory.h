#pragma once

#include <cstdint>
#include <vector>

#include "common/projection/projection.h"
#include "verifier/control_input.h"
#include "verifier/create_verifier.h"
#include "verifier/model/model_config.h"
#include "verifier/step_output.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// The blocks of a GPU's memory that steps need beside the model's own, in bytes: DeviceStepRunner allocates
// these, and who sizes the cache leaves room for them.
struct StepMemory {
  int64_t input = 0;
  ControlBytes controls;
  int64_t chosen = 0;
  int64_t moves = 0;
  int64_t sample_scratch = 0;
  int64_t choices = 0;  // of controlled steps, as the rest down to log_prob_scratch
  int64_t top_edges = 0;
  int64_t top_scratch = 0;
  int64_t log_prob_scratch = 0;
  int64_t output = 0;

  int64_t total() const;
};

// `hidden` of a feature row; 0: none.
StepMemory StepMemoryFor(const StepCapacity& capacity, int64_t vocabulary, int64_t hidden);

// All steps that are recorded. Without rows with logits there is nothing to control.
std::vector<StepKind> RecordedKinds(const StepCapacity& capacity);

// What CreateVerifier takes of a GPU's memory beside the cache: its buffers, and an estimate of what the
// driver takes for the recorded steps. `projection` may be null.
int64_t BytesBesideCache(const VerifierOptions& options, const ModelConfig& model,
                         const Projection* projection);

// What the cache may have of `bytes_left`: not all that the others leave, for the driver loads kernels, too.
int64_t BytesForCache(int64_t bytes_left, int64_t beside_cache);
// Room for max_sequences sequences of `pages_each` within `bytes`; always for one.
int64_t DefaultPages(int64_t pages_each, int max_sequences, int64_t page_bytes, int64_t bytes);

}  // namespace arborist::verifier
