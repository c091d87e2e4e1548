#include "verifier/admission_order.h"

#include <chrono>
#include <tuple>

namespace arborist::verifier {
namespace {

// When one of priority 0 would have come to have the same place.
std::chrono::steady_clock::time_point CameAsIf(const Sequence& sequence) {
  return sequence.opened - std::chrono::seconds(sequence.args.priority);
}

}  // namespace

bool AdmittedBefore(const Sequence& a, const Sequence& b) {
  return std::make_tuple(CameAsIf(a), a.handle) < std::make_tuple(CameAsIf(b), b.handle);
}

}  // namespace arborist::verifier
