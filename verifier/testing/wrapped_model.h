#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "verifier/model/model.h"

namespace arborist::verifier {

// Stands between the step and a model: sees every batch and the cache, may plant a fault in either, fail or
// wait. Runs on the step thread.
class WrappedModel final : public Model {
 public:
  using Before = std::function<absl::Status(StepBatch& batch, KvPlanes& planes)>;
  using After = std::function<void(const StepBatch& batch, KvPlanes& planes, const ForwardResult& result)>;

  // Either hook may be null.
  WrappedModel(std::unique_ptr<Model> inner, Before before, After after)
      : inner_(std::move(inner)), before_(std::move(before)), after_(std::move(after)) {}

  const ModelConfig& config() const override { return inner_->config(); }
  int max_rows() const override { return inner_->max_rows(); }
  absl::StatusOr<ForwardResult> Forward(const StepBatchView& batch, KvPlanes& planes) override {
    StepBatch altered = CopyOf(batch);
    if (before_) {
      RETURN_IF_ERROR(before_(altered, planes));
    }
    ASSIGN_OR_RETURN(const ForwardResult result, inner_->Forward(ViewOf(altered), planes));
    if (after_) {
      after_(CopyOf(batch), planes, result);
    }
    return result;
  }
  void Observe(ForwardObserver* observer) override { inner_->Observe(observer); }

 private:
  std::unique_ptr<Model> inner_;
  Before before_;
  After after_;
};

}  // namespace arborist::verifier
