#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"

namespace arborist {

// While min_tokens holds the stop ids back, something must be left to choose: a row without would choose a
// forbidden token. `allowed`: the only ids that may be chosen; empty: all. All ids are of the vocabulary, in
// any order and as often as may be.
bool StopsLeaveAChoice(std::span<const TokenId> stops, std::span<const TokenId> allowed, int64_t vocabulary);

}  // namespace arborist
