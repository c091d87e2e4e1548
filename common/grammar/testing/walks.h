#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/grammar/constraint.h"

namespace arborist::testing {

// The tokens of tests: every byte, then common pieces of JSON and text, then one special token and the stop
// token.
std::shared_ptr<const TokenVocabulary> TestVocabulary();
TokenId TestStop();
TokenId TestSpecial();

// Whether `text` is accepted as a whole: byte by byte, and in several random tokenisations under the masks.
// All must agree, else the test fails.
bool AcceptsText(const Constraint& constraint, const TokenVocabulary& vocabulary, const std::string& text,
                 std::mt19937& random);

// A random walk under the masks until the stop token is drawn or nothing but it is left. After `patience`
// tokens every step takes the shortest token that leads to the end, as far as a look of a few tokens shows.
// Nothing: the walk met a dead end or did not end.
std::optional<std::string> RandomText(const Constraint& constraint, const TokenVocabulary& vocabulary,
                                      int patience, std::mt19937& random);

}  // namespace arborist::testing
