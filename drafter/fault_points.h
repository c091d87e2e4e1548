#pragma once

#include <cstdint>

namespace arborist::drafter {

// Test hook: makes a drafter fail on purpose at a named point of a round.
enum class FaultPoint { kNone, kBeforeTree, kAfterTreeSent, kBeforeTokensForwarded };
enum class FaultKind { kNone, kDie, kStall };

struct FaultPlan {
  FaultPoint point = FaultPoint::kNone;
  FaultKind kind = FaultKind::kNone;
  int64_t round = 1;  // of a sequence, from 1
};

// Ends the process at once, as a crash would, or says that the sequence shall stall.
bool ShallStall(const FaultPlan& plan, FaultPoint point, int64_t round);

}  // namespace arborist::drafter
