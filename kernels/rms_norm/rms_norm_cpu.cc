#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels::cpu {

absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateRmsNorm(args));
  const auto row = ForActiveIsa(portable::RmsNormRow, avx2::RmsNormRow, avx512::RmsNormRow);
  // A thread is worth waking for some ten thousand elements.
  const int64_t grain = std::max<int64_t>(1, 16384 / args.x.columns);
  stream.threads->ParallelFor(args.x.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      row(args.x.row(t), args.weight.data, args.out.row(t), args.x.columns, args.epsilon);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
