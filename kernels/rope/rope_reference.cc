#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/rope/rope.h"

namespace arborist::kernels::reference {

absl::Status Rope(const RopeArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateRope(args));
  const int64_t half = args.cosine.columns;
  for (int64_t t = 0; t < args.position.size; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      float* x = args.x + t * args.row_stride + h * args.head_stride;
      if (args.from != nullptr) {
        std::copy_n(RopeSource(args, t, h), 2 * half, x);
      }
      for (int64_t i = 0; i < half; ++i) {
        float& first = args.pairing == RopePairing::kInterleaved ? x[2 * i] : x[i];
        float& second = args.pairing == RopePairing::kInterleaved ? x[2 * i + 1] : x[i + half];
        const double a = first;
        const double b = second;
        const double c = args.cosine.row(args.position[t])[i];
        const double s = args.sine.row(args.position[t])[i];
        first = static_cast<float>(a * c - b * s);
        second = static_cast<float>(b * c + a * s);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
