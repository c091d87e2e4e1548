#pragma once

#include <cstdint>

namespace arborist::kernels::testing {

// Calls of any operator new since the program began. Linking this replaces the program's operator new and
// delete by ones that count, so only tests that need it do.
int64_t AllocationCount();

}  // namespace arborist::kernels::testing
