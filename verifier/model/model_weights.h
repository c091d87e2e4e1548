#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/view.h"
#include "kernels/moe_experts/moe_experts.h"
#include "verifier/model/model_config.h"
#include "verifier/model/shard_plan.h"
#include "verifier/model/tensor_reader.h"

namespace arborist::verifier {

// One rank's part of one layer. H = heads of this rank.
struct AttentionWeights {
  View1<const float> kv_a_norm;  // [latent]
  View1<const float> q_a_norm;   // [q rank], empty without q_lora
  WeightView q_a;                // [q rank, hidden], rows 0 without q_lora
  WeightView q_nope;             // [H * nope, q rank or hidden]: q_b_proj or q_proj, its rows sorted into two
  WeightView q_pe;               // [H * rope, q rank or hidden]
  WeightView q_b;         // q_nope and q_pe as one matrix where they lie together (on a GPU), else rows 0
  WeightView kv_a;        // [latent + rope, hidden]
  WeightView q_and_kv_a;  // q_a and kv_a as one matrix where they lie together (on a GPU), else rows 0
  WeightView w_uk;        // [H * latent, nope]: a head's W_UK transposed
  WeightView w_uv;        // [H * v, latent]
  WeightView o;           // [hidden, H * v]
};

struct LayerWeights {
  View1<const float> input_norm;           // [hidden]
  View1<const float> post_attention_norm;  // [hidden]
  AttentionWeights attention;
  bool is_moe = false;
  kernels::ExpertWeights dense;                      // of a dense layer
  WeightView router;                                 // [experts, hidden]
  View1<const float> router_bias;                    // [experts], or empty
  std::vector<kernels::ExpertWeights> experts;       // [experts]
  View1<const kernels::ExpertWeights> expert_table;  // [experts] the same in the memory of the backend
  kernels::ExpertWeights shared;                     // width 0: none
};

// Checkpoint names -> views. Memory is mapped or owned by `reader`, or on another device by `memory`.
struct ModelWeights {
  std::unique_ptr<TensorReader> reader;  // null once everything lies in `memory`
  DeviceMemory memory;
  DeviceMemory expert_tables;
  WeightView embedding;     // [vocabulary, hidden]
  WeightView head;          // [rows of this rank, hidden]
  View1<const float> norm;  // [hidden]
  std::vector<LayerWeights> layers;
};

// Errors name the tensor at fault. Tensors of the vision model, of multi-token prediction layers and rotary
// tables may lie in the checkpoint and are not touched.
absl::StatusOr<ModelWeights> LoadModelWeights(const std::string& directory, const ModelConfig& config,
                                              const ShardPlan& plan);

}  // namespace arborist::verifier
