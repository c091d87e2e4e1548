#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// DFlash's attention for several sequences ("streams"): the queries of a stream are one block of neighbouring
// rows. Query i of a block sees the context keys [context_begin[i], context_rows) of its own stream and the
// block keys [block_begin[i], block_end[i]) of its own block. A full layer is not causal ([0, context_rows)
// and [0, block)); a sliding layer is causal and windowed, which the caller expresses by these ranges
// (tests/golden/README.md says where the rule is from). Query head h uses key/value head h / (heads /
// kv_heads).
//
// Softmax in the order context then block, ascending, in chunks, each reduced and then merged in ascending
// order as in tree_attention_mla. The CPU's chunks are 64 of the query's visible keys; CUDA's are a number
// that head_dim decides (split_layout.h) of the list of all context rows and block rows. Either way a query
// depends on its own stream alone: not on other streams, their number, or where rows lie in the planes.
inline constexpr int64_t kMaxGqaHeadDim = 256;
inline constexpr int64_t kMaxGqaBlock = 64;

struct BlockAttentionGqaArgs {
  View3<const float> query;              // [streams * block, heads, head_dim], rope applied
  int64_t block = 0;                     // rows of a stream, 1..64
  const float* context_key = nullptr;    // [plane_rows, kv_heads, head_dim], rows of all streams
  const float* context_value = nullptr;  // [plane_rows, kv_heads, head_dim]
  int64_t plane_rows = 0;
  View1<const int32_t> context_first;  // [streams] plane row of the first context row
  View1<const int32_t> context_rows;   // [streams], each in [0, max_context]; first + rows <= plane_rows
  int64_t max_context = 0;             // what the host knows: sizes scratch and launch
  View1<const int32_t> context_begin;  // [streams * block], each in [0, context_rows]
  View1<const int32_t> block_begin;    // [streams * block]
  View1<const int32_t> block_end;      // [streams * block], 0 <= block_begin <= i < block_end <= block
  View3<const float> block_key;        // [streams * block, kv_heads, head_dim]
  View3<const float> block_value;      // [streams * block, kv_heads, head_dim]
  float scale = 0;
  View3<float> out;  // [streams * block, heads, head_dim]
  // CUDA only: zero before the first call and left so that the next one may have as many streams or fewer.
  void* scratch = nullptr;
  size_t scratch_bytes = 0;
};

// Bytes of scratch for the shapes in `args`; its pointers are not looked at.
size_t BlockAttentionGqaScratchBytes(const BlockAttentionGqaArgs& args);

absl::Status ValidateBlockAttentionGqa(
    const BlockAttentionGqaArgs& args);  // all of it: for kernels whose arrays the host can read
absl::Status ValidateBlockAttentionGqaShapes(
    const BlockAttentionGqaArgs& args);  // what the host knows of arrays on a device

namespace reference {
absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream);
}
namespace cpu {
absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream);
}
namespace cuda {
// Ranges outside their bounds are cut to them.
absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream);
}  // namespace cuda

}  // namespace arborist::kernels
