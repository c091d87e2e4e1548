#pragma once

#include <functional>

namespace arborist::verifier {

// One step, as its end leaves it.
struct StepReport {
  double seconds = 0;
  int sequences = 0;    // that had a part in it
  int tree_rows = 0;    // roots and drafted nodes
  int prompt_rows = 0;  // the rest
  bool ok = false;
};
using OnStep = std::function<void(const StepReport&)>;

}  // namespace arborist::verifier
