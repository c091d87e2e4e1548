#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels::cpu {
namespace {

// A thread is worth waking for some ten thousand elements.
int64_t GrainOf(int64_t columns) { return std::max<int64_t>(1, 16384 / columns); }

}  // namespace

absl::Status AddRmsNorm(const AddRmsNormArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateAddRmsNorm(args));
  const auto norm = ForActiveIsa(portable::RmsNormRow, avx2::RmsNormRow, avx512::RmsNormRow);
  const int64_t columns = args.into.columns;
  stream.threads->ParallelFor(args.into.rows, GrainOf(columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* from = args.from.row(t);
      float* into = args.into.row(t);
      for (int64_t c = 0; c < columns; ++c) {
        into[c] += from[c];
      }
      if (args.copy.columns > 0) {
        std::copy_n(into, columns, args.copy.row(t));
      }
      norm(into, args.weight.data, args.out.row(t), columns, args.epsilon);
    }
  });
  return absl::OkStatus();
}

absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateRmsNorm(args));
  const auto row = ForActiveIsa(portable::RmsNormRow, avx2::RmsNormRow, avx512::RmsNormRow);
  stream.threads->ParallelFor(args.x.rows, GrainOf(args.x.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      row(args.x.row(t), args.weight.data, args.out.row(t), args.x.columns, args.epsilon);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
