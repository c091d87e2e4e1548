#include <algorithm>

#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/linear/linear_lanes.h"
#include "kernels/linear_per_head/linear_per_head.h"

namespace arborist::kernels::cpu {

absl::Status LinearPerHead(const LinearPerHeadArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinearPerHead(args));
  const int64_t products = std::max<int64_t>(1, args.tokens * args.outputs * args.weight.columns);
  const int64_t grain = std::max<int64_t>(1, 16384 / products);
  stream.threads->ParallelFor(args.tokens > 0 ? args.heads : 0, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t h = begin; h < end; ++h) {
      DotBlock({.x = args.x + h * args.x_head_stride,
                .x_stride = args.x_row_stride,
                .rows = args.tokens,
                .weight = WeightRow(args.weight, h * args.outputs),
                .dtype = args.weight.dtype,
                .outputs = args.outputs,
                .k = args.weight.columns,
                .out = args.out + h * args.out_head_stride,
                .out_stride = args.out_row_stride});
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
