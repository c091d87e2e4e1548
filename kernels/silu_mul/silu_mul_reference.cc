#include <cmath>

#include "common/base/status_macros.h"
#include "kernels/silu_mul/silu_mul.h"

namespace arborist::kernels::reference {

absl::Status SiluMul(const SiluMulArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateSiluMul(args));
  for (int64_t t = 0; t < args.gate.rows; ++t) {
    for (int64_t c = 0; c < args.gate.columns; ++c) {
      const double gate = args.gate.row(t)[c];
      args.out.row(t)[c] = static_cast<float>(gate / (1 + std::exp(-gate)) * args.up.row(t)[c]);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
