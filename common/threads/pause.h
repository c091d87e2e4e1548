#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace arborist {

// In a loop that waits: leaves the core to the thread that shares it, for some tens of nanoseconds.
inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace arborist
