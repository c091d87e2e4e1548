#include "kernels/feature_projection/feature_projection.h"

#include "absl/strings/str_cat.h"

namespace arborist::kernels {

absl::Status ValidateFeatureProjection(const FeatureProjectionArgs& args) {
  const int64_t rows = args.taps.rows;
  const int64_t hidden = args.weight.rows;
  if (args.taps.columns != args.weight.columns || hidden <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("taps.columns=", args.taps.columns, ", expected weight.columns=", args.weight.columns));
  }
  if (args.norm_weight.size != hidden) {
    return absl::InvalidArgumentError(
        absl::StrCat("norm_weight.size=", args.norm_weight.size, ", expected weight.rows=", hidden));
  }
  if (args.scratch.rows < rows || args.scratch.columns != hidden) {
    return absl::InvalidArgumentError(absl::StrCat("scratch=[", args.scratch.rows, ", ", args.scratch.columns,
                                                   "], expected [", rows, ", ", hidden, "]"));
  }
  if (args.out.rows != rows || args.out.columns != hidden || args.out.row_stride < hidden) {
    return absl::InvalidArgumentError(absl::StrCat("out=[", args.out.rows, ", ", args.out.columns,
                                                   "], expected [", rows, ", ", hidden, "]"));
  }
  if (!(args.epsilon > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("epsilon=", args.epsilon, ", expected > 0"));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
