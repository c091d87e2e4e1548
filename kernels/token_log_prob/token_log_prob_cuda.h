#pragma once

#include <cstdint>

namespace arborist::kernels {

// What the CUDA column keeps of a chunk between its two launches; chunks are sample_target's.
struct LogProbChunk {
  float max;      // of the chunk's logits
  float sum_exp;  // of exp(logit - max)
  int32_t finite;
  int32_t unused;
};

}  // namespace arborist::kernels
