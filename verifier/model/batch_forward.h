#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "verifier/model/model.h"
#include "verifier/step_input.h"
#include "verifier/step_size.h"

namespace arborist::verifier {

// A model run on a batch in host memory, wherever the model computes: on a GPU the batch is padded like every
// step there and brought over. For tests of the model, not for serving.
class BatchForward {
 public:
  // Model and device outlive it.
  static absl::StatusOr<BatchForward> Create(const StepCapacity& capacity, Model& model, Device& device);

  // Done on return; the result lies in the device's memory.
  absl::StatusOr<ForwardResult> Run(const StepBatch& batch, KvPlanes& planes);

 private:
  BatchForward(const StepCapacity& capacity, Model& model, Device& device)
      : sizes_(capacity), model_(&model), device_(&device) {}

  StepSizes sizes_;
  Model* model_;
  Device* device_;
  std::optional<StepInput> input_;  // on a GPU
};

}  // namespace arborist::verifier
