#include <algorithm>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/row_ops/row_ops.h"

namespace arborist::kernels::cpu {
namespace {

constexpr int64_t kGrainElements = 32768;  // fewer are faster on one thread

}  // namespace

absl::Status AddRows(const AddRowsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateAddRows(args));
  const int64_t columns = args.into.columns;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, columns));
  stream.threads->ParallelFor(args.into.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* source = args.from.row(t);
      float* sum = args.into.row(t);
      for (int64_t c = 0; c < columns; ++c) {
        sum[c] += source[c];
      }
    }
  });
  return absl::OkStatus();
}

absl::Status GatherRows(const GatherRowsArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateGatherRows(args));
  for (int64_t t = 0; t < args.into.rows; ++t) {
    Check(args.row[t] >= 0 && args.row[t] < args.from.rows, "a gathered row is one of the step's rows");
    std::copy_n(args.from.row(args.row[t]), args.into.columns, args.into.row(t));
  }
  return absl::OkStatus();
}

// A copy is a copy.
absl::Status CopyRows(const CopyRowsArgs& args, StreamView stream) {
  return reference::CopyRows(args, stream);
}

}  // namespace arborist::kernels::cpu
