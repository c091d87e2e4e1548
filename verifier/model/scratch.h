#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/tensor/view.h"
#include "verifier/model/model_config.h"
#include "verifier/model/shard_plan.h"

namespace arborist::verifier {

struct ScratchSizes {
  int64_t max_rows = 0;
  int64_t max_logits_rows = 0;
  int64_t taps = 0;
  int threads = 1;  // of the kernels' pool
};

// All activations of a forward pass, allocated once. A buffer belongs to the step that names it until that
// step's last use; shapes are for this rank. H = heads of this rank.
class Scratch {
 public:
  Scratch(const ModelConfig& config, const ShardPlan& plan, const ScratchSizes& sizes);

  // The first `rows` rows of a buffer that is [max, columns].
  static View2<float> Rows(std::vector<float>& buffer, int64_t rows, int64_t columns) {
    return {buffer.data(), rows, columns, columns};
  }
  size_t total_bytes() const;

  std::vector<float> residual;      // [rows, hidden]
  std::vector<float> normed;        // [rows, hidden]
  std::vector<float> update;        // [rows, hidden] what attention or MLP adds
  std::vector<float> q_latent;      // [rows, q rank]
  std::vector<float> q_nope;        // [rows, H * nope]
  std::vector<float> query;         // [rows, H, latent + rope]
  std::vector<float> kv;            // [rows, latent + rope]
  std::vector<float> attended;      // [rows, H, latent]
  std::vector<float> values;        // [rows, H * v]
  std::vector<float> gate;          // [rows, dense width]
  std::vector<float> up;            // [rows, dense width]
  std::vector<float> router;        // [rows, experts]
  std::vector<float> route_weight;  // [rows, experts per token]
  std::vector<int32_t> route;       // [rows, experts per token]
  std::vector<float> taps;          // [rows, taps * hidden]
  std::vector<float> selected;      // [logits rows, hidden]
  std::vector<float> logits;        // [logits rows, vocabulary]
  std::vector<float> logits_slice;  // [logits rows, vocabulary slice], with more than one rank
  std::vector<float> logits_all;    // [ranks, logits rows, vocabulary slice], with more than one rank
  View1<std::byte> moe;             // for moe_experts, 64-byte aligned
  View1<std::byte> attention;       // for tree_attention_mla, 64-byte aligned

 private:
  std::vector<std::byte> moe_storage_;
  std::vector<std::byte> attention_storage_;
};

}  // namespace arborist::verifier
