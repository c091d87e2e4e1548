#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "drafter/proposer.h"

namespace arborist::drafter {

// What every proposer refuses: nodes outside 0 .. kMaxTreeBudget, a negative or non-finite temperature, and
// a context without any token.
absl::Status CheckProposeArgs(const ProposeArgs& args, int32_t length);

// Tokens must continue the `length` that are there, with ids in [0, vocabulary).
absl::Status CheckAppend(int32_t first_position, std::span<const TokenId> tokens, int32_t length,
                         int64_t vocabulary);

}  // namespace arborist::drafter
