#pragma once

#include "verifier/sequence_table.h"

namespace arborist::verifier {

// Which of two queued sequences gets pages first: larger priority first, but a point of it is worth one
// second of waiting. So none waits for ever: what comes with so many points more passes only those that have
// waited for less than so many seconds longer. Equal ones in order of their Open.
bool AdmittedBefore(const Sequence& a, const Sequence& b);

}  // namespace arborist::verifier
