#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/communicator.h"
#include "common/comm/local_communicator.h"
#include "verifier/model/interpretation.h"
#include "verifier/model/model.h"
#include "verifier/model/model_weights.h"
#include "verifier/model/rank_context.h"
#include "verifier/model/scratch.h"

namespace arborist::verifier {

// The Model of this family, as one rank of communicator.size(). Every rank is given the same batches.
class DecoderModel final : public Model {
 public:
  // The interpretation is the caller's, normally Interpret(config). Device, communicator and kernels outlive
  // the model.
  static absl::StatusOr<std::unique_ptr<DecoderModel>> Create(const ModelOptions& options, ModelConfig config,
                                                              Interpretation meaning,
                                                              const kernels::KernelSet& kernels,
                                                              Device& device, Communicator& communicator);

  const ModelConfig& config() const override { return config_; }
  int max_rows() const override { return options_.max_rows; }
  absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) override;
  void Observe(ForwardObserver* observer) override { rank_.observer = observer; }

 private:
  DecoderModel(const ModelOptions& options, ModelConfig config, Interpretation meaning, ShardPlan plan,
               ModelWeights weights, RopeTables rope, Scratch scratch, const kernels::KernelSet& kernels,
               Device& device, Communicator& communicator);

  absl::Status CheckBatch(const StepBatchView& batch, const KvPlanes& planes) const;
  absl::Status Embed(const StepBatchView& batch);
  // Where the layer's output is wanted too; columns 0: nowhere.
  View2<float> TapOf(int layer, int64_t rows) const;
  absl::Status ComputeLogits(const StepBatchView& batch);

  const ModelOptions options_;
  const ModelConfig config_;
  const Interpretation meaning_;
  const ShardPlan plan_;
  const ModelWeights weights_;
  const RopeTables rope_;
  Scratch scratch_;
  const bool host_reads_batch_;
  Device& device_;
  const int marked_layers_;  // as many make a part for Device::Mark
  RankContext rank_;
};

}  // namespace arborist::verifier
