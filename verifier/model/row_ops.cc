#include "verifier/model/row_ops.h"

#include <algorithm>

#include "common/base/check.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kGrainElements = 32768;  // fewer are faster on one thread

}  // namespace

void AddRows(View2<const float> from, View2<float> into, StreamView stream) {
  Check(from.rows == into.rows && from.columns == into.columns, "rows of one shape");
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, into.columns));
  stream.threads->ParallelFor(into.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* source = from.row(t);
      float* sum = into.row(t);
      for (int64_t c = 0; c < into.columns; ++c) {
        sum[c] += source[c];
      }
    }
  });
}

void GatherRows(View2<const float> from, std::span<const int32_t> row, View2<float> into) {
  for (int64_t t = 0; t < into.rows; ++t) {
    Check(row[t] >= 0 && row[t] < from.rows, "a gathered row is one of the step's rows");
    std::copy_n(from.row(row[t]), into.columns, into.row(t));
  }
}

void CopyRows(View2<const float> from, View2<float> into) {
  for (int64_t t = 0; t < into.rows; ++t) {
    std::copy_n(from.row(t), into.columns, into.row(t));
  }
}

}  // namespace arborist::verifier
