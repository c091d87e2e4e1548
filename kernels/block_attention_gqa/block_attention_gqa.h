#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

// DFlash's attention for one sequence: query i of the block sees the context keys [context_begin[i], context)
// and the block keys [block_begin[i], block_end[i]). A full layer is not causal ([0, context) and [0,
// block)); a sliding layer is causal and windowed, which the caller expresses by these ranges
// (tests/golden/README.md says where the rule is from). Query head h uses key/value head h / (heads /
// kv_heads). Softmax in the order context then block, ascending: chunks of 64 of the query's visible keys,
// each reduced and then merged in ascending order as in tree_attention_mla, so a query is a function of its
// visible keys alone.
inline constexpr int64_t kMaxGqaHeadDim = 256;

struct BlockAttentionGqaArgs {
  View3<const float> query;              // [block, heads, head_dim], rope applied
  const float* context_key = nullptr;    // [context, kv_heads, head_dim]
  const float* context_value = nullptr;  // [context, kv_heads, head_dim]
  int64_t context = 0;
  View1<const int32_t> context_begin;  // [block], each in [0, context]
  View1<const int32_t> block_begin;    // [block]
  View1<const int32_t> block_end;      // [block], 0 <= block_begin[i] <= i < block_end[i] <= block
  View3<const float> block_key;        // [block, kv_heads, head_dim]
  View3<const float> block_value;      // [block, kv_heads, head_dim]
  float scale = 0;
  View3<float> out;  // [block, heads, head_dim]
};

absl::Status ValidateBlockAttentionGqa(const BlockAttentionGqaArgs& args);

namespace reference {
absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream);
}
namespace cpu {
absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream);
}
namespace cuda {
absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
