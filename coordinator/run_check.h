#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// What the tokens of `state` (prompt, output_so_far, sampling) themselves say: whether they are the whole
// answer. kNone if they are not, or if only its path can know.
FinishReason CompleteReason(const PathStart& state);

// Checks a run against `state` and leaves only its new tokens with what belongs to them: none if all are
// known. An error names what cannot be; nothing of such a run may reach the client.
absl::Status TakeNew(const PathStart& state, int32_t vocabulary_size, TokenRun& run);

// The same for log-probabilities of the prompt, of which `known` have come.
absl::Status TakeNew(const PathStart& state, int64_t known, PromptScores& scores);

// How many log-probabilities of the prompt its path owes: its first token has none.
int64_t OwedPromptScores(const PathStart& state);

}  // namespace arborist::coordinator
