#pragma once

#include "absl/status/status.h"
#include "common/device/device.h"
#include "verifier/model/model_weights.h"

namespace arborist::verifier {

// Copies every matrix and vector, and the tables of experts, into one block of the device's memory, points
// the views there and gives the mapped checkpoint back. On the CPU nothing moves. Tensors that share bytes
// share them there too.
absl::Status MoveToDevice(ModelWeights& weights, Device& device);

}  // namespace arborist::verifier
