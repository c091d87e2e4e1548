#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels::cpu {

absl::Status Rope(const RopeArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateRope(args));
  const auto rotate = ForActiveIsa(portable::RopeVector, avx2::RopeVector, avx512::RopeVector);
  const int64_t grain = std::max<int64_t>(1, 8192 / (args.heads * 2 * args.cosine.columns));
  stream.threads->ParallelFor(args.position.size, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < args.heads; ++h) {
        float* x = args.x + t * args.row_stride + h * args.head_stride;
        if (args.from != nullptr) {
          std::copy_n(RopeSource(args, t, h), 2 * args.cosine.columns, x);
        }
        rotate(x, args.cosine.row(args.position[t]), args.sine.row(args.position[t]), args.cosine.columns,
               args.pairing == RopePairing::kInterleaved);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
