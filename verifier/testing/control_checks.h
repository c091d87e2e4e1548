#pragma once

#include "verifier/testing/exactness_checks.h"

namespace arborist::verifier {

// What controls must do on any model and device. Each check reports through GoogleTest.

// Controls so strong that the text tells whether they act, whatever the model thinks, in plain decoding and
// in trees: nothing said twice, nothing but what is allowed, no stop id too early.
void CheckStrongControls(const Subject& subject);

// A sequence without controls says the same, to the last bit of every log-probability, alone in plain steps,
// beside controlled sequences, and with a top list, which tells and does not act. `tokens` of each.
void CheckControlsActOnTheirOwnSequence(const Subject& subject, int tokens);

}  // namespace arborist::verifier
