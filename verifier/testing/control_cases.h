#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "verifier/verifier.h"

namespace arborist::verifier {

// One way to control a sequence.
struct ControlCase {
  std::string name;  // of letters
  SamplingControls controls;
  std::vector<TokenId> stop_ids;
  std::shared_ptr<const Constraint> constraint = nullptr;
};

// Every control alone and all of them together, with parameters drawn from `seed`, strong enough to change a
// random model's text, but for those whose name begins with Tell: they tell and do not act.
std::vector<ControlCase> ControlCases(int vocabulary, uint64_t seed);

}  // namespace arborist::verifier
