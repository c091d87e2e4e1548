#pragma once

#include <cstdint>

namespace arborist {

// Both >= 0 and divisor > 0.
constexpr int64_t CeilDiv(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }
constexpr int64_t RoundUp(int64_t value, int64_t multiple) { return CeilDiv(value, multiple) * multiple; }

}  // namespace arborist
