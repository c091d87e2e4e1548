#pragma once

#include "verifier/testing/constraint_cases.h"
#include "verifier/testing/exactness_checks.h"

namespace arborist::verifier {

// What must hold of sequences whose text must have a form, on any model with a vocabulary of at least the
// small texts'. Each check reports through GoogleTest; the subject's controls, stop ids and constraint are
// those of the case.

// CheckTextIsTheSame of such a sequence.
void CheckConstrainedText(Subject subject, const ConstraintCase& with, int tokens);

// `texts` of them, at temperatures 0 and 1 by turns, in trees that replay the text without the form, much of
// which violates it, beside a sequence without one: each is what plain decoding says, its tokens lead from
// state to state, it ends where the form, the other controls or a stop id end it, and its neighbour says what
// it says alone. Returns how many ended before `tokens`.
int CheckEveryTextHasTheForm(const Subject& subject, const ConstraintCase& with, int texts, int tokens);

}  // namespace arborist::verifier
