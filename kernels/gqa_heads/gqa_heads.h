#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/rope/rope.h"

namespace arborist::kernels {

// From projections to what block_attention_gqa reads: queries and keys are normed head by head (rms_norm.h),
// then rotated (rope.h); values stay as they are. Rows [0, block_rows) go to query, key and value; rows
// behind them are the context's, whose keys and values go into the planes (their queries are nobody's). One
// call in place of six.
struct GqaHeadsArgs {
  View2<const float> query_in;    // [block_rows, heads * head_dim]
  View2<const float> key_in;      // [rows, kv_heads * head_dim]
  View2<const float> value_in;    // [rows, kv_heads * head_dim]
  View1<const float> query_norm;  // [head_dim], or empty: no norm
  View1<const float> key_norm;    // the same
  float epsilon = 0;              // > 0
  View1<const int32_t> position;  // [rows], each in [0, cosine.rows)
  View2<const float> cosine;      // [positions, head_dim / 2]
  View2<const float> sine;        // [positions, head_dim / 2]
  RopePairing pairing = RopePairing::kInterleaved;
  // Each may be what the corresponding input is, exactly.
  View3<float> query;            // [block_rows, heads, head_dim]; heads may be 0
  View3<float> key;              // [block_rows, kv_heads, head_dim]
  View3<float> value;            // [block_rows, kv_heads, head_dim]
  View1<const int32_t> slot;     // [rows - block_rows] row of the planes; negative: a padding row, skipped
  float* key_plane = nullptr;    // [plane_rows, kv_heads, head_dim]
  float* value_plane = nullptr;  // [plane_rows, kv_heads, head_dim]
  int64_t plane_rows = 0;
};

absl::Status ValidateGqaHeads(
    const GqaHeadsArgs& args);  // all of it: for kernels whose arrays the host can read
absl::Status ValidateGqaHeadsShapes(const GqaHeadsArgs& args);  // what the host knows of arrays on a device

namespace reference {
absl::Status GqaHeads(const GqaHeadsArgs& args, StreamView stream);
}
namespace cpu {
// Bits are those of rms_norm and rope.
absl::Status GqaHeads(const GqaHeadsArgs& args, StreamView stream);
}  // namespace cpu
namespace cuda {
// A position outside the tables: the vector is not rotated. A slot past the planes is skipped.
absl::Status GqaHeads(const GqaHeadsArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
