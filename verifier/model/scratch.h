#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/view.h"
#include "verifier/model/model_config.h"
#include "verifier/model/shard_plan.h"

namespace arborist::verifier {

struct ScratchSizes {
  int64_t max_rows = 0;
  int64_t max_logits_rows = 0;
  int64_t taps = 0;
  int64_t max_pages = 0;  // of a sequence
};

// All activations of a forward pass, one block of the device's memory allocated once. A buffer belongs to the
// step that names it until that step's last use; shapes are for this rank. H = heads of this rank.
class Scratch {
 public:
  static absl::StatusOr<Scratch> Create(const ModelConfig& config, const ShardPlan& plan,
                                        const ScratchSizes& sizes, Device& device);

  // The first `rows` rows of a buffer that is [max, columns].
  static View2<float> Rows(float* buffer, int64_t rows, int64_t columns) {
    return {buffer, rows, columns, columns};
  }
  size_t total_bytes() const { return memory_.bytes(); }

  float* residual = nullptr;      // [rows, hidden]
  float* normed = nullptr;        // [rows, hidden]
  float* update = nullptr;        // [rows, hidden] what attention or MLP adds
  float* compressed = nullptr;    // [rows, q rank + latent + rope]
  float* q_parts = nullptr;       // [rows, H * nope, then H * rope]
  float* query = nullptr;         // [rows, H, latent + rope]
  float* attended = nullptr;      // [rows, H, latent]
  float* values = nullptr;        // [rows, H * v]
  float* gate = nullptr;          // [rows, dense width]
  float* up = nullptr;            // [rows, dense width]
  float* router = nullptr;        // [rows, experts]
  float* route_weight = nullptr;  // [rows, experts per token]
  int32_t* route = nullptr;       // [rows, experts per token]
  float* taps = nullptr;          // [rows, taps * hidden]
  float* selected = nullptr;      // [logits rows, hidden]
  float* logits = nullptr;        // [logits rows, vocabulary]
  float* logits_slice = nullptr;  // [logits rows, vocabulary slice], with more than one rank
  float* logits_all = nullptr;    // [ranks, logits rows, vocabulary slice], with more than one rank
  View1<std::byte> moe;           // for moe_experts
  View1<std::byte> attention;     // for tree_attention_mla

 private:
  Scratch() = default;

  DeviceMemory memory_;
};

}  // namespace arborist::verifier
