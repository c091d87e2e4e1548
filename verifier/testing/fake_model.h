#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "verifier/model/model.h"

namespace arborist::verifier {

struct FakeModelOptions {
  int vocabulary = 64;
  int layers = 2;
  int hidden = 8;
  int taps = 0;  // tapped layers; their columns follow from the rows' states
  int max_rows = 0;
  int max_logits_rows = 0;
  uint64_t seed = 1;
  float sharpness = 3;  // added to one token's logit; the others' lie in [0, 4)
};

// An exactness oracle in place of a decoder: no arithmetic that could round, only hashes. In layer 0 a row's
// K/V is a hash of (token, position); its state is a hash over its whole ordered key list as read from the
// cache; the next layer's K/V is a hash of that state; logits and taps are functions of the last state. So
// one wrong slot, key, order or position anywhere changes everything after it. Costs nothing but memory
// reads.
class FakeModel final : public Model {
 public:
  explicit FakeModel(const FakeModelOptions& options);

  const ModelConfig& config() const override { return config_; }
  int max_rows() const override { return options_.max_rows; }
  absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) override;

 private:
  uint64_t HashKeys(const StepBatchView& batch, const KvPlanes& planes, int layer, int row) const;

  FakeModelOptions options_;
  ModelConfig config_;
  std::vector<uint64_t> state_;  // [max_rows]
  std::vector<float> logits_;    // [max_logits_rows, vocabulary]
  std::vector<float> taps_;      // [max_rows, taps * hidden]
};

}  // namespace arborist::verifier
