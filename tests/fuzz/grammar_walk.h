#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/grammar/constraint.h"
#include "tests/fuzz/fuzz_input.h"

namespace arborist::fuzz {

// Every byte, some longer tokens, then one without text and the one that ends the sequence.
std::shared_ptr<const TokenVocabulary> SmallVocabulary();
inline constexpr int kTokens = 256 + 12 + 2;
inline constexpr TokenId kSpecial{kTokens - 2};
inline constexpr TokenId kStop{kTokens - 1};

bool IsAllowed(const Constraint::Mask& mask, int32_t token);

// Compiles and walks: each byte of `input` picks a token among those that the mask allows. At every state
// each token's bit must say what Advance says, both what its bytes one by one say, and what may end may stop.
// `accepted` is called with each text that may end. Returns whether it compiled.
bool WalkUnderMasks(const ConstraintSpec& spec, FuzzInput& input,
                    const std::function<void(const std::string&)>& accepted);

}  // namespace arborist::fuzz
