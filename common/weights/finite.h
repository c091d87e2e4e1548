#pragma once

#include "common/weights/safetensors.h"

namespace arborist {

// Whether no element is an infinity or NaN. Of F32, BF16 and F16; other types are our mistake.
bool AllFinite(const TensorView& tensor);

}  // namespace arborist
