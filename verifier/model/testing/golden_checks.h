#pragma once

#include <string>

#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier::testing {

// What must hold for a golden target on any device; `options` says which checkpoint, kernels, device and K/V.
// Each check reports through GoogleTest.

// Logits, hidden states after each layer (as a part of the largest) and the argmax of every position.
void CheckGolden(const std::string& name, const HarnessOptions& options, double tolerance);

// Chunks of 1, 7, 64 and all: logits, taps and K/V bit for bit.
void CheckChunks(const std::string& name, const HarnessOptions& options);

// Two branches and a deep chain behind a prefix: each node against its own path run as plain tokens.
void CheckTreeNodes(const std::string& name, const HarnessOptions& options);

}  // namespace arborist::verifier::testing
