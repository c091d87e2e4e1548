#pragma once

#include <ctime>

namespace arborist::testing {

// What the calling thread has had of a core so far.
inline double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace arborist::testing
