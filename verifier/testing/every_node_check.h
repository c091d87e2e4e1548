#pragma once

#include "common/device/device.h"
#include "common/tensor/dtype.h"
#include "verifier/model/model.h"

namespace arborist::verifier {

// Every node of random trees: logits and K/V of all layers equal, bit for bit, those of a root-only step
// after its ancestors were committed, and K/V those of the same position in prompt chunks of any length, for
// roots around the ends of blocks (64) and of splits below `longest`. The model has room for 25 logits rows.
void CheckEveryNode(Model& model, int longest, Device& device, DType kv_type);

}  // namespace arborist::verifier
