#include "common/base/status_macros.h"
#include "kernels/linear/dense_cuda.h"
#include "kernels/linear_per_head/linear_per_head.h"

namespace arborist::kernels::cuda {

namespace {

DenseArgs ToDense(const LinearPerHeadArgs& args) {
  return {.x = args.x,
          .x_row_stride = args.x_row_stride,
          .x_head_stride = args.x_head_stride,
          .weight = args.weight,
          .out = args.out,
          .out_row_stride = args.out_row_stride,
          .out_head_stride = args.out_head_stride,
          .tokens = args.tokens,
          .heads = args.heads,
          .outputs = args.outputs};
}

}  // namespace

absl::Status LinearPerHead(const LinearPerHeadArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinearPerHead(args));
  return Dense(ToDense(args), stream.cuda_stream);
}

absl::Status LinearPerHeadFast(const LinearPerHeadArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinearPerHead(args));
  return DenseFast(ToDense(args), stream.cuda_stream);
}

}  // namespace arborist::kernels::cuda
