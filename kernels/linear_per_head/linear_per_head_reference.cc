#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/linear_per_head/linear_per_head.h"

namespace arborist::kernels::reference {

absl::Status LinearPerHead(const LinearPerHeadArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateLinearPerHead(args));
  for (int64_t t = 0; t < args.tokens; ++t) {
    for (int64_t h = 0; h < args.heads; ++h) {
      const float* x = args.x + t * args.x_row_stride + h * args.x_head_stride;
      for (int64_t n = 0; n < args.outputs; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < args.weight.columns; ++k) {
          sum += static_cast<double>(x[k]) * WeightElement(args.weight, h * args.outputs + n, k);
        }
        args.out[t * args.out_row_stride + h * args.out_head_stride + n] = static_cast<float>(sum);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
