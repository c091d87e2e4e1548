#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

struct FinishRule {
  std::span<const TokenId> stop_ids;
  int64_t output_left = 0;   // tokens until max_tokens, >= 1
  int64_t context_left = 0;  // tokens until the context is full, >= 1
  int constraint_end = 0;    // tokens of the run after which nothing may follow; 0: more may
  int constraint_cut = 0;    // tokens of the run after which what was chosen does not count; 0: all counts
};

struct RunCut {
  int kept = 0;  // tokens of the run that count, the finishing one included
  FinishReason reason = FinishReason::kNone;
};

// Looks for the first token of a run that finishes the sequence: a stop id, else the constraint, else
// max_tokens, else the context.
RunCut CutRun(std::span<const TokenId> run, const FinishRule& rule);

}  // namespace arborist::verifier
