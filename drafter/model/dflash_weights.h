#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/view.h"
#include "common/weights/checkpoint.h"
#include "drafter/model/dflash_config.h"

namespace arborist::drafter {

struct DFlashLayerWeights {
  std::vector<float> input_norm;      // [hidden]
  std::vector<float> attention_norm;  // [hidden], post_attention_layernorm
  std::vector<float> query_norm;      // [head_dim]
  std::vector<float> key_norm;        // [head_dim]
  WeightView query;                   // [heads * head_dim, hidden]
  WeightView key;                     // [kv_heads * head_dim, hidden]
  WeightView value;                   // [kv_heads * head_dim, hidden]
  WeightView output;                  // [hidden, heads * head_dim]
  WeightView gate;                    // [intermediate, hidden]
  WeightView up;                      // [intermediate, hidden]
  WeightView down;                    // [hidden, intermediate]
};

// Matrices are used where the files are mapped; the owner keeps both checkpoints.
struct DFlashWeights {
  std::vector<DFlashLayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  WeightView embedding;           // [vocabulary, hidden], the target's
  WeightView head;                // [vocabulary, hidden], the target's
};

// The drafter's tensors (names of DFlash, all with or all without the prefix "model."). A tensor that the
// network has no use for is an error: it would change what is computed.
absl::Status LoadDrafterTensors(const Checkpoint& drafter, const DFlashSettings& settings,
                                DFlashWeights& weights);

// embed_tokens and lm_head of the target, under "language_model." or not; with tie_word_embeddings the head
// is the embedding.
absl::Status LoadTargetTensors(const Checkpoint& target, const DFlashSettings& settings,
                               DFlashWeights& weights);

}  // namespace arborist::drafter
