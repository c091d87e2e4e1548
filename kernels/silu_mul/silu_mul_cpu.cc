#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/silu_mul/silu_mul_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {

void SiluMulRow(const float* gate, const float* up, float* out, int64_t columns) {
  ForActiveIsa(portable::SiluMulRow, avx2::SiluMulRow, avx512::SiluMulRow)(gate, up, out, columns);
}

namespace cpu {

absl::Status SiluMul(const SiluMulArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateSiluMul(args));
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, args.gate.columns));
  stream.threads->ParallelFor(args.gate.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      SiluMulRow(args.gate.row(t), args.up.row(t), args.out.row(t), args.gate.columns);
    }
  });
  return absl::OkStatus();
}

}  // namespace cpu
}  // namespace arborist::kernels
