#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/tensor/view.h"
#include "common/weights/checkpoint.h"

namespace arborist {

// What turns tapped layer outputs of the target into a DFlash drafter's features: hidden_norm(fc(taps)). It
// is part of the drafter's checkpoint, and the verifier computes it, so both processes load it from here and
// compare hashes.
struct Projection {
  Checkpoint checkpoint;    // keeps fc mapped
  WeightView fc;            // [hidden, taps * hidden]
  std::vector<float> norm;  // [hidden]
  float epsilon = 0;
  std::vector<int32_t> taps;  // k: the output of the 0-based layer k, before any norm
  std::string hash;           // hex SHA-256 over the bytes of fc, of hidden_norm, and the taps as int32

  int64_t hidden() const { return fc.rows; }
};

// Reads config.json, fc.weight and hidden_norm.weight (all names may have the prefix "model.").
absl::StatusOr<Projection> LoadProjection(const std::string& drafter_directory);

// dflash_config.target_layer_ids; without them DFlash's own rule: evenly from the second to the third-last
// target layer, one a draft layer.
absl::StatusOr<std::vector<int32_t>> TargetLayerIds(const JsonObject& config);

// "" or "model.", whichever prefix the checkpoint's fc.weight has.
absl::StatusOr<std::string> DrafterPrefix(const Checkpoint& checkpoint);

}  // namespace arborist
