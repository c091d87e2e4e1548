#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/grammar/constraint.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// A sequence whose text must have a form.
struct ConstraintCase {
  std::string name;  // of letters
  ConstraintSpec spec;
  SamplingControls controls = {};
};

// Texts for the 64 ids of a small model: letters, digits, what JSON needs, some longer ones, and at the end
// two ids without text, of which SmallStop is the last.
std::shared_ptr<const TokenVocabulary> SmallVocabulary();
inline constexpr int kSmallVocabulary = 64;
inline constexpr TokenId kSmallStop{63};

// Forms that end by a stop id and forms that end by themselves, with words that are forbidden, with other
// controls, and one that runs into a dead end.
std::vector<ConstraintCase> ConstraintCases();

// Over the small texts, in a vocabulary of at least as many ids.
std::shared_ptr<const Constraint> CompileSmall(const ConstraintSpec& spec, int vocabulary = kSmallVocabulary);

// Puts the case on a sequence.
void Constrain(const ConstraintCase& with, OpenArgs& args, int vocabulary = kSmallVocabulary);

}  // namespace arborist::verifier
