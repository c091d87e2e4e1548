#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/view.h"
#include "kernels/kernel_set.h"
#include "verifier/kv_planes.h"
#include "verifier/model/forward_observer.h"
#include "verifier/model/model_config.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

struct ModelOptions {
  std::string directory;    // Hugging Face layout
  int max_rows = 0;         // most rows of a step
  int max_logits_rows = 0;  // most rows whose logits are wanted in a step
  int max_context = 0;      // most positions of a sequence; rotary tables are this long
  std::vector<int>
      tap_layers;  // outputs kept for the feature projection, in the drafter's order; may be empty
};

// What a forward pass leaves behind, in the memory of the model's device, valid until the next one.
struct ForwardResult {
  View2<const float> logits;  // [logits_rows, vocabulary]
  View2<const float> taps;    // [rows, tap_layers * hidden]; columns 0 without taps
};

// A DeepSeek-V2/V3 or Kimi K2 decoder on one rank. One thread at a time.
class Model {
 public:
  // Errors name the file, tensor or config key at fault. The kernels are the device's; the device outlives
  // the model.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const ModelOptions& options,
                                                     const kernels::KernelSet& kernels, Device& device);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual int max_rows() const = 0;
  // Writes the K/V rows of every batch row into `planes`, then attends. Allocates nothing; on a GPU it only
  // enqueues.
  virtual absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) = 0;
  // From now on Forward shows its kernels to `observer`; null: to nobody. Never while work is recorded. A
  // model without such kernels has nothing to show.
  virtual void Observe(ForwardObserver* /*observer*/) {}
};

}  // namespace arborist::verifier
