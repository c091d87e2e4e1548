#include "drafter/fault_points.h"

#include <cstdlib>

namespace arborist::drafter {

bool ShallStall(const FaultPlan& plan, FaultPoint point, int64_t round) {
  if (plan.point != point || plan.round != round) {
    return false;
  }
  if (plan.kind == FaultKind::kDie) {
    std::_Exit(86);
  }
  return plan.kind == FaultKind::kStall;
}

}  // namespace arborist::drafter
