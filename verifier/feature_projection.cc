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

}  // namespace

FeatureProjection::FeatureProjection(Projection projection)
    : projection_(std::move(projection)),
      taps_(static_cast<size_t>(kGroupRows * projection_.fc.columns)),
      projected_(static_cast<size_t>(kGroupRows * projection_.hidden())),
      feature_(static_cast<size_t>(kGroupRows * projection_.hidden())) {}

absl::Status FeatureProjection::Store(const kernels::KernelSet& kernels, View2<const float> taps,
                                      std::span<const int32_t> rows, std::span<const int32_t> slots,
                                      KvPlanes& planes, StreamView stream) {
  Check(rows.size() == slots.size(), "one slot a row");
  Check(planes.feature_row() == hidden(), "the plane has the projection's width");
  const int64_t inputs = projection_.fc.columns;
  if (taps.columns != inputs) {
    return absl::InternalError(absl::StrCat("taps.columns=", taps.columns, ", expected ", inputs));
  }
  const int64_t outputs = hidden();
  for (size_t begin = 0; begin < rows.size(); begin += kGroupRows) {
    const int64_t count = std::min<int64_t>(kGroupRows, static_cast<int64_t>(rows.size() - begin));
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(taps.row(rows[begin + static_cast<size_t>(i)]), inputs, taps_.data() + i * inputs);
    }
    RETURN_IF_ERROR(kernels.feature_projection({.taps = {taps_.data(), count, inputs, inputs},
                                                .weight = projection_.fc,
                                                .norm_weight = {projection_.norm.data(), outputs},
                                                .epsilon = projection_.epsilon,
                                                .scratch = {projected_.data(), count, outputs, outputs},
                                                .out = {feature_.data(), count, outputs, outputs}},
                                               stream));
    const auto row_bytes = static_cast<int64_t>(sizeof(BFloat16)) * outputs;
    RETURN_IF_ERROR(kernels.kv_append({.rows = feature_.data(),
                                       .source_stride_bytes = row_bytes,
                                       .slot = {slots.data() + begin, count},
                                       .plane = planes.features(),
                                       .slots = planes.slots(),
                                       .row_bytes = row_bytes},
                                      stream));
  }
  return absl::OkStatus();
}

}  // namespace arborist::verifier
