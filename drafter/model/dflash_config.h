#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/rope/rope.h"

namespace arborist::drafter {

// What a block position sees, by absolute positions of query q and key k; context and block follow one rule:
//   (not causal or k <= q) and (window == 0 or |q - k| < window).
struct LayerVisibility {
  bool causal = false;
  int32_t window = 0;  // 0 = unlimited
};

// The drafter's own rotary embedding over the whole head_dim, never the target's.
struct RotarySettings {
  double theta = 10000;
  bool yarn = false;
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_positions = 0;
  double attention_factor = 1;  // multiplies cosine and sine
};

// How DFlash reads its parts. Each field has one right value, its default; tests alter them to see that the
// golden data would notice the mistake.
struct DFlashReading {
  bool bonus_in_first_slot = true;          // else slot 0 holds the mask token like the others
  bool query_key_norm = true;               // per head, before the rotation
  bool context_through_input_norm = false;  // features are hidden_norm's output and go straight to k and v
  bool final_norm = true;                   // before the head
  int first_predicting_slot = 1;            // slot j predicts the token at start + j itself
  kernels::RopePairing pairing = kernels::RopePairing::kHalfSplit;
};

// config.json of a DFlash checkpoint, checked and derived.
struct DFlashSettings {
  int64_t vocabulary = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  float epsilon = 0;
  int32_t block = 0;       // slots: the bonus token and block - 1 masks
  int32_t mask_token = 0;  // a row of the target's embedding
  int32_t max_positions = 0;
  float attention_scale = 0;  // head_dim^-0.5, with or without YaRN
  std::vector<int32_t> taps;
  std::vector<LayerVisibility> layers;
  RotarySettings rotary;
  DFlashReading reading;

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// Reads `directory`/config.json. Errors name the key, its value and what is supported; so does a key that
// changes the meaning in a way we lack (DFlash2, causal_head, MLA drafters, scaled embeddings, biases).
absl::StatusOr<DFlashSettings> ReadDFlashConfig(const std::string& directory);

}  // namespace arborist::drafter
