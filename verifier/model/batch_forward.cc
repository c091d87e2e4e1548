#include "verifier/model/batch_forward.h"

#include "common/base/status_macros.h"

namespace arborist::verifier {

absl::StatusOr<BatchForward> BatchForward::Create(const StepCapacity& capacity, Model& model,
                                                  Device& device) {
  BatchForward forward(capacity, model, device);
  if (device.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(forward.input_, StepInput::Create(capacity, device));
  }
  return forward;
}

absl::StatusOr<ForwardResult> BatchForward::Run(const StepBatch& batch, KvPlanes& planes) {
  if (!input_.has_value()) {
    return model_->Forward(ViewOf(batch), planes);
  }
  const StepSize size = sizes_.For(ContentsOf(batch));
  input_->Pack(size, batch, {});
  RETURN_IF_ERROR(input_->EnqueueCopy(size));
  ASSIGN_OR_RETURN(const ForwardResult forward, model_->Forward(input_->View(size), planes));
  RETURN_IF_ERROR(device_->Synchronize());
  return forward;
}

}  // namespace arborist::verifier
