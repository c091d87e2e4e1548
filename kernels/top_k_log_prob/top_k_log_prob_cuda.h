#pragma once

#include <cstdint>

namespace arborist::kernels {

// What the CUDA column keeps between its launches.

// Ids whose exponentials are added together; part of the order of log_prob's sum.
inline constexpr int64_t kTopKSegment = 16384;

// Candidates that one block hands on at most: all the K best of what it read are among them.
inline constexpr int kTopKHandedOn = 384;

struct TopKSegmentResult {
  float logit_max;  // of the segment's logits; rows with noise only
  float max;        // of x
  float sum;        // of exp((x - max) * beta)
  int32_t finite;
  int32_t candidates;
  int32_t unused[3];
  uint64_t candidate[kTopKHandedOn];  // RankKey of x and id
};

}  // namespace arborist::kernels
