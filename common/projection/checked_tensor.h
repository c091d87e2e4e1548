#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/view.h"
#include "common/weights/checkpoint.h"

namespace arborist {

// A matrix of the checkpoint, used where it lies: F32, BF16 or F16, exactly [rows, columns]. Anything else is
// InvalidArgument with the tensor's name; a missing one is NotFound. Its elements are not looked at.
absl::StatusOr<WeightView> FindMatrix(const Checkpoint& checkpoint, const std::string& name, int64_t rows,
                                      int64_t columns);

// The same of finite elements only; reads them all.
absl::StatusOr<WeightView> FindFiniteMatrix(const Checkpoint& checkpoint, const std::string& name,
                                            int64_t rows, int64_t columns);

// A vector of exactly `size` finite elements, widened to fp32.
absl::StatusOr<std::vector<float>> ReadVector(const Checkpoint& checkpoint, const std::string& name,
                                              int64_t size);

}  // namespace arborist
