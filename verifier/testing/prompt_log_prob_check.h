#pragma once

#include "verifier/testing/exactness_checks.h"

namespace arborist::verifier {

// Log-probabilities of a prompt are, to the bit, those that its tokens have as output, with any chunks,
// company, bound of rows with logits, from where its pages come or who resumes it; and, up to rounding, those
// of one bare forward pass over the whole prompt. No control acts on them. `tokens` of output.
void CheckPromptLogProbs(const Subject& subject, int tokens);

}  // namespace arborist::verifier
