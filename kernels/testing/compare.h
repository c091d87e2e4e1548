#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "common/threads/thread_pool.h"
#include "gtest/gtest.h"

namespace arborist::kernels::testing {

// |got - want| <= tolerance * max|want| for every element; NaN and infinity must stand at the same places. A
// NaN anywhere else fails, because the comparison is written as !(difference <= bound).
::testing::AssertionResult Close(std::span<const float> got, std::span<const float> want, double tolerance);

// The same bits.
::testing::AssertionResult SameBits(std::span<const float> got, std::span<const float> want);

// Calls body(stream) for every supported instruction set and for 1, 2 and 3 threads; restores the active set.
void ForEveryIsaAndThreadCount(const std::function<void(StreamView)>& body);

}  // namespace arborist::kernels::testing
