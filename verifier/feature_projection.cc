#include "verifier/feature_projection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

// Enough to use every core, few enough that the gathered taps of a large model stay small.
constexpr int64_t kGroupRows = 64;

int64_t RowsBytes(const Projection& projection, int64_t rows) {
  return rows * projection.hidden() * static_cast<int64_t>(sizeof(float));
}

int64_t WeightBytes(const Projection& projection) {
  return projection.hidden() * projection.fc.columns * static_cast<int64_t>(ByteSize(projection.fc.dtype));
}

}  // namespace

int64_t FeatureProjection::BytesOnGpu(const Projection& projection, int64_t max_rows) {
  return RowsBytes(projection, 1) + RowsBytes(projection, max_rows) + WeightBytes(projection);
}

absl::StatusOr<FeatureProjection> FeatureProjection::Create(Projection projection, int64_t max_rows,
                                                            Device& device) {
  FeatureProjection made(std::move(projection));
  const Projection& source = made.projection_;
  const int64_t hidden = source.hidden(), inputs = source.fc.columns;
  const bool cpu = device.kind() == DeviceKind::kCpu;
  const int64_t rows = cpu ? kGroupRows : max_rows;
  const auto allocate = [&device](int64_t bytes) {
    return device.Allocate(static_cast<size_t>(bytes), "feature projection");
  };
  ASSIGN_OR_RETURN(made.norm_, allocate(RowsBytes(source, 1)));
  RETURN_IF_ERROR(device.Copy(made.norm_.data(), source.norm.data(), made.norm_.bytes()));
  ASSIGN_OR_RETURN(made.projected_, allocate(RowsBytes(source, rows)));
  made.fc_ = source.fc;
  if (cpu) {
    ASSIGN_OR_RETURN(made.taps_, allocate(rows * inputs * static_cast<int64_t>(sizeof(float))));
    ASSIGN_OR_RETURN(made.feature_, allocate(rows * hidden * static_cast<int64_t>(sizeof(BFloat16))));
  } else {
    ASSIGN_OR_RETURN(made.fc_memory_, allocate(WeightBytes(source)));
    RETURN_IF_ERROR(device.Copy(made.fc_memory_.data(), source.fc.data, made.fc_memory_.bytes()));
    made.fc_.data = made.fc_memory_.data();
  }
  RETURN_IF_ERROR(device.Synchronize());
  return made;
}

absl::Status FeatureProjection::CheckTaps(View2<const float> taps) const {
  if (taps.columns != fc_.columns) {
    return absl::InternalError(absl::StrCat("taps.columns=", taps.columns, ", expected ", fc_.columns));
  }
  return absl::OkStatus();
}

absl::Status FeatureProjection::Project(const kernels::KernelSet& kernels, View2<const float> taps,
                                        View1<const int32_t> slot, View2<BFloat16> out, KvPlanes& planes,
                                        StreamView stream) {
  RETURN_IF_ERROR(
      kernels.feature_projection({.taps = taps,
                                  .weight = fc_,
                                  .norm_weight = {norm_.As<float>(), hidden()},
                                  .epsilon = projection_.epsilon,
                                  .scratch = {projected_.As<float>(), taps.rows, hidden(), hidden()},
                                  .out = out},
                                 stream));
  const auto row_bytes = static_cast<int64_t>(sizeof(BFloat16)) * hidden();
  return kernels.kv_append({.rows = out.data,
                            .source_stride_bytes = row_bytes,
                            .slot = slot,
                            .plane = planes.features(),
                            .slots = planes.slots(),
                            .row_bytes = row_bytes},
                           stream);
}

absl::Status FeatureProjection::Store(const kernels::KernelSet& kernels, View2<const float> taps,
                                      std::span<const int32_t> rows, std::span<const int32_t> slots,
                                      KvPlanes& planes, StreamView stream) {
  Check(rows.size() == slots.size(), "one slot a row");
  Check(planes.feature_row() == hidden(), "the plane has the projection's width");
  RETURN_IF_ERROR(CheckTaps(taps));
  const int64_t inputs = fc_.columns;
  float* gathered = taps_.As<float>();
  for (size_t begin = 0; begin < rows.size(); begin += kGroupRows) {
    const int64_t count = std::min<int64_t>(kGroupRows, static_cast<int64_t>(rows.size() - begin));
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(taps.row(rows[begin + static_cast<size_t>(i)]), inputs, gathered + i * inputs);
    }
    RETURN_IF_ERROR(Project(kernels, {gathered, count, inputs, inputs}, {slots.data() + begin, count},
                            {feature_.As<BFloat16>(), count, hidden(), hidden()}, planes, stream));
  }
  return absl::OkStatus();
}

absl::Status FeatureProjection::StoreAll(const kernels::KernelSet& kernels, View2<const float> taps,
                                         View1<const int32_t> slot, View2<BFloat16> out, KvPlanes& planes,
                                         StreamView stream) {
  RETURN_IF_ERROR(CheckTaps(taps));
  return Project(kernels, taps, slot, out, planes, stream);
}

}  // namespace arborist::verifier
