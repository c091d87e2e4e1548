#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/view.h"
#include "drafter/model/dflash_weights.h"
#include "drafter/model/placement.h"

namespace arborist::drafter {

struct PlacedLayer {
  View1<const float> input_norm, attention_norm, query_norm, key_norm;
  WeightView query, key, value, output, gate, up, down;
  // Two products in one where the device has the matrices together; else without data.
  WeightView key_value, gate_up;
};

// DFlashWeights where a device reads them: as they are mapped on the CPU, uploaded once elsewhere.
struct PlacedWeights {
  static absl::StatusOr<PlacedWeights> Place(DFlashWeights weights, Device& device);

  std::vector<PlacedLayer> layers;
  View1<const float> final_norm;
  WeightView embedding, head;

 private:
  PlacedWeights(DFlashWeights weights, Device& device) : host_(std::move(weights)), placement_(device) {}

  DFlashWeights host_;
  Placement placement_;
};

}  // namespace arborist::drafter
