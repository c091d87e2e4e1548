#pragma once

#include <functional>

#include "common/threads/thread_pool.h"

namespace arborist::kernels::bench {

// What the machine can do at best, measured here and now with the threads of a pool: the floors of the
// tables.
struct Machine {
  double read_bytes_per_second = 0;  // from a working set like the one of the cases, beyond the second cache
  double fused_adds_per_second = 0;  // fp32 fused multiply-adds of the active instruction set, registers only
  double FloorSeconds(double bytes, double fused_adds) const;
};

// The ring that weights of a case rotate through: larger than two second caches, as a model's weights are.
inline constexpr int64_t kRingBytes = int64_t{32} << 20;

Machine Measure(ThreadPool& pool);

// Median seconds of one call of body(i), i = 0, 1, 2, ..., over at least 15 samples and 30 ms.
double MedianSeconds(const std::function<void(int64_t)>& body);

}  // namespace arborist::kernels::bench
