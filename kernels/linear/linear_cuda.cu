#include <cuda_runtime.h>

#include <algorithm>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/linear/dense_cuda.h"
#include "kernels/linear/linear.h"

namespace arborist::kernels::cuda {
namespace {

// Blocks of 64 rows that keep the memory of a large GPU busy. A constant: results must not depend on the
// card's size.
constexpr int64_t kBlocks = 200;
// Fewer steps of 32 inputs than this are not worth another rank.
constexpr int64_t kStepsPerRank = 8;
// About as many as a large GPU has SMs; for what is no part of the bits.
constexpr int64_t kBlocksAtOnce = 132;
// Blocks of 64 rows that fill it several times over.
constexpr int64_t kManyBlocks = 1024;
// Elements of a weight that is no more than a launch.
constexpr int64_t kSmallWeight = 512 * 1024;

DenseArgs ToDense(const View2<const float>& x, const WeightView& weight, const View2<float>& out) {
  return {.x = x.data,
          .x_row_stride = x.row_stride,
          .x_head_stride = 0,
          .weight = weight,
          .out = out.data,
          .out_row_stride = out.row_stride,
          .out_head_stride = 0,
          .tokens = x.rows,
          .heads = 1,
          .outputs = weight.rows};
}

}  // namespace

DensePlan PlanDense(int64_t heads, int64_t outputs, int64_t inputs, int64_t tokens, bool clusters) {
  DensePlan plan;
  const int64_t steps = CeilDiv(inputs, 32), rows = heads * CeilDiv(outputs, 64);
  while (clusters && plan.ranks < 8 && rows * plan.ranks < kBlocks &&
         steps / (2 * plan.ranks) >= kStepsPerRank) {
    plan.ranks *= 2;
  }
  const int64_t blocks = rows * plan.ranks;
  for (const int n : {8, 16, 24, 40}) {
    // A block copies all of its tokens through one SM: where SMs would be idle, fewer tokens a block.
    if (n >= tokens || blocks * CeilDiv(tokens, n) <= kBlocksAtOnce) {
      plan.tokens = n;
      // Tall blocks read x less often, but fewer keep less of the weights under way.
      plan.rows = n == 40 && blocks >= (heads == 1 ? kManyBlocks : kBlocks) ? 128 : 64;
      plan.two_an_sm = blocks * CeilDiv(tokens, n) <= 2 * kBlocksAtOnce;
      return plan;
    }
  }
  plan.rows = 128;
  plan.tokens = tokens <= 80 ? 40 : 64;
  return plan;
}

absl::Status Dense(const DenseArgs& args, void* cuda_stream) {
  if (args.tokens == 0) {
    return absl::OkStatus();
  }
  if (args.weight.dtype != DType::kBF16) {
    return DenseFma(args, cuda_stream);
  }
  int device = 0, clusters = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "linear"));
  RETURN_IF_ERROR(CudaStatus(cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device), "linear"));
  return DenseMma(args, PlanDense(args.heads, args.outputs, args.weight.columns, args.tokens, clusters != 0),
                  cuda_stream);
}

absl::Status DenseFast(const DenseArgs& args, void* cuda_stream) {
  // More tokens ask for more arithmetic a weight than its time in memory hides, unless launches cost most.
  const int64_t most = args.heads * args.outputs * args.weight.columns <= kSmallWeight ? kMaxVectorTokens : 1;
  if (args.tokens > 0 && args.tokens <= most && SuitsVectors(args)) {
    return DenseVectors(args, cuda_stream);
  }
  return Dense(args, cuda_stream);
}

absl::Status Linear(const LinearArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinear(args));
  return Dense(ToDense(args.x, args.weight, args.out), stream.cuda_stream);
}

absl::Status LinearRowParallel(const LinearRowParallelArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinearRowParallel(args));
  return Dense(ToDense(args.x, args.weight, args.out), stream.cuda_stream);
}

absl::Status LinearFast(const LinearArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinear(args));
  return DenseFast(ToDense(args.x, args.weight, args.out), stream.cuda_stream);
}

absl::Status LinearRowParallelFast(const LinearRowParallelArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateLinearRowParallel(args));
  return DenseFast(ToDense(args.x, args.weight, args.out), stream.cuda_stream);
}

}  // namespace arborist::kernels::cuda
