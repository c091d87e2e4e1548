#pragma once

#include <cstdint>

namespace arborist::kernels {

// What the CUDA column keeps between its launches.

// Ids whose exponentials are added together; part of the order of log_prob's sum.
inline constexpr int64_t kTopKSegment = 20480;

// Candidates that one block hands on: at least the K best of what it read.
inline constexpr int kTopKHandedOn = 256;

struct TopKSegmentResult {
  float max;  // of x
  float sum;  // of exp((x - max) * beta)
  int32_t finite;
  int32_t candidates;
  uint64_t candidate[kTopKHandedOn];  // order key of x above, complement of the id below
};

}  // namespace arborist::kernels
