#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "drafter/model/carver.h"
#include "drafter/model/dflash_config.h"

namespace arborist::drafter {

// Context rows that are projected together.
inline constexpr int32_t kContextChunk = 64;

// How large a model's passes get.
struct PassLimits {
  int64_t streams = 1;
  int64_t append_rows = 0;  // of a pass
  // Context rows that a stream may see, as far as the device's launches are concerned.
  int64_t max_context = 0;
};

// Every activation of one forward pass, in a device's memory, allocated once. Rows are those of all streams'
// blocks; rows of features follow where `all` rows are said.
struct Scratch {
  static absl::StatusOr<Scratch> Allocate(const DFlashSettings& settings, const PassLimits& limits,
                                          Device& device);

  float* residual = nullptr;   // [rows, hidden]
  float* normed = nullptr;     // [max(all, kContextChunk), hidden]
  float* added = nullptr;      // [rows, hidden]: what attention or MLP adds to the residual; the head's input
  float* query = nullptr;      // [rows, heads, head_dim]
  float* key = nullptr;        // [rows, kv_heads, head_dim]
  float* value = nullptr;      // [rows, kv_heads, head_dim]
  float* key_value = nullptr;  // [max(all, kContextChunk), 2, kv_heads, head_dim], on CUDA
  float* attention = nullptr;  // [rows, heads, head_dim]
  float* gate = nullptr;       // [rows, intermediate], then
  float* up = nullptr;         // [rows, intermediate]; or [rows, 2, intermediate] as one
  float* logits = nullptr;     // [streams * (block - 1), vocabulary]
  void* splits = nullptr;      // of block_attention_gqa, on CUDA
  size_t splits_bytes = 0;
  DeviceMemory memory;

 private:
  void Carve(const DFlashSettings& settings, const PassLimits& limits, bool on_gpu, Carver& carver);
};

}  // namespace arborist::drafter
