#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/math.h"

namespace arborist::kernels {

// Where things lie in the kernel's scratch. A slot is one (expert, row) pair; slots stand expert by expert,
// rows ascending inside.
struct MoeScratchLayout {
  MoeScratchLayout(int64_t tokens, int64_t hidden, int64_t experts, int top_k, int64_t width,
                   int64_t shared_width) {
    const int64_t slots = tokens * top_k;
    gate = Take(slots * width, sizeof(float));
    up = Take(slots * width, sizeof(float));
    shared_gate = Take(tokens * shared_width, sizeof(float));
    shared_up = Take(tokens * shared_width, sizeof(float));
    sums = Take(tokens * hidden * 8, sizeof(float));
    slot_weight = Take(slots, sizeof(float));
    slot_row = Take(slots, sizeof(int32_t));
    expert_begin = Take(experts + 1, sizeof(int32_t));
    active = Take(experts, sizeof(int32_t));
    bytes = static_cast<size_t>(end_);
  }

  int64_t gate;          // float [slots, width]: becomes silu(gate) * up in place
  int64_t up;            // float [slots, width]
  int64_t shared_gate;   // float [tokens, shared_width]
  int64_t shared_up;     // float [tokens, shared_width]
  int64_t sums;          // float [tokens, hidden, 8]
  int64_t slot_weight;   // float [slots]
  int64_t slot_row;      // int32 [slots]
  int64_t expert_begin;  // int32 [experts + 1]
  int64_t active;        // int32 [experts]: ids of experts with rows, ascending
  size_t bytes;

 private:
  int64_t Take(int64_t count, int64_t size) {
    const int64_t at = end_;
    end_ = RoundUp(end_ + count * size, 64);
    return at;
  }
  int64_t end_ = 0;
};

}  // namespace arborist::kernels
