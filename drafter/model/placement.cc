#include "drafter/model/placement.h"

#include <utility>

#include "common/base/status_macros.h"

namespace arborist::drafter {

absl::StatusOr<const void*> Placement::Place(const void* data, size_t bytes, absl::string_view what) {
  if (device_->kind() == DeviceKind::kCpu) {
    return data;
  }
  const auto there = copies_.find(data);
  if (there != copies_.end() && there->second.bytes() >= bytes) {
    return there->second.data();
  }
  ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes, what));
  RETURN_IF_ERROR(device_->Copy(memory.data(), data, bytes));
  const void* copy = memory.data();
  copies_.insert_or_assign(data, std::move(memory));
  return copy;
}

absl::StatusOr<WeightView> Placement::Stack(std::initializer_list<WeightView*> matrices,
                                            absl::string_view what) {
  const auto bytes_of = [](const WeightView& matrix) {
    return static_cast<size_t>(matrix.rows * matrix.columns) * ByteSize(matrix.dtype);
  };
  const WeightView& first = **matrices.begin();
  WeightView stacked{.data = nullptr, .dtype = first.dtype, .rows = 0, .columns = first.columns};
  size_t bytes = 0;
  bool alike = true;
  for (const WeightView* matrix : matrices) {
    alike = alike && matrix->dtype == first.dtype && matrix->columns == first.columns;
    bytes += bytes_of(*matrix);
    stacked.rows += matrix->rows;
  }
  if (device_->kind() == DeviceKind::kCpu || !alike) {
    return WeightView{};
  }
  ASSIGN_OR_RETURN(DeviceMemory memory, device_->Allocate(bytes, what));
  stacked.data = memory.data();
  std::byte* at = memory.As<std::byte>();
  copies_.insert_or_assign((*matrices.begin())->data, std::move(memory));
  for (WeightView* matrix : matrices) {
    RETURN_IF_ERROR(device_->Copy(at, matrix->data, bytes_of(*matrix)));
    matrix->data = at;
    at += bytes_of(*matrix);
  }
  return stacked;
}

}  // namespace arborist::drafter
