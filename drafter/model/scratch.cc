#include "drafter/model/scratch.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"

namespace arborist::drafter {

absl::StatusOr<Scratch> Scratch::Allocate(const DFlashSettings& settings, const PassLimits& limits,
                                          Device& device) {
  const bool on_gpu = device.kind() == DeviceKind::kCuda;
  Scratch scratch;
  Carver counter(nullptr);
  scratch.Carve(settings, limits, on_gpu, counter);
  ASSIGN_OR_RETURN(scratch.memory, device.Allocate(counter.bytes(), "drafter activations"));
  Carver carver(scratch.memory.data());
  scratch.Carve(settings, limits, on_gpu, carver);
  return scratch;
}

void Scratch::Carve(const DFlashSettings& s, const PassLimits& limits, bool on_gpu, Carver& carver) {
  const int64_t rows = limits.streams * s.block, all = rows + limits.append_rows;
  residual = carver.Take<float>(rows * s.hidden);
  normed = carver.Take<float>(std::max<int64_t>(all, kContextChunk) * s.hidden);
  added = carver.Take<float>(rows * s.hidden);
  query = carver.Take<float>(rows * s.query_width());
  key = carver.Take<float>(rows * s.kv_width());
  value = carver.Take<float>(rows * s.kv_width());
  attention = carver.Take<float>(rows * s.query_width());
  gate = carver.Take<float>(2 * rows * s.intermediate);
  up = gate == nullptr ? nullptr : gate + rows * s.intermediate;
  logits = carver.Take<float>(limits.streams * (s.block - 1) * s.vocabulary);
  if (on_gpu) {
    key_value = carver.Take<float>(std::max<int64_t>(all, kContextChunk) * 2 * s.kv_width());
    kernels::BlockAttentionGqaArgs attention_shape;
    attention_shape.query = {nullptr, rows, s.heads, s.head_dim};
    attention_shape.block_key = {nullptr, rows, s.kv_heads, s.head_dim};
    attention_shape.block = s.block;
    attention_shape.max_context = limits.max_context;
    splits_bytes = kernels::BlockAttentionGqaScratchBytes(attention_shape);
    splits = carver.Take<std::byte>(static_cast<int64_t>(splits_bytes));
  }
}

}  // namespace arborist::drafter
