#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "kernels/feature_projection/feature_projection.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/linear/linear.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// The sum over the block in a fixed tree, in every thread.
__device__ float SumOverBlock(float value) {
  __shared__ float part[kThreads / 32];
  for (int offset = 16; offset >= 1; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  if (threadIdx.x % 32 == 0) {
    part[threadIdx.x / 32] = value;
  }
  __syncthreads();
  float sum = part[0];
  for (int i = 1; i < kThreads / 32; ++i) {
    sum += part[i];
  }
  return sum;
}

// One block a row.
__global__ void __launch_bounds__(kThreads)
    NormToBFloat16(View2<const float> fused, View1<const float> weight, float epsilon, View2<BFloat16> out) {
  LetNextKernelStart();
  WaitForKernelBefore();
  const float* row = fused.data + blockIdx.x * fused.row_stride;
  const int64_t channels = fused.columns;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < channels; c += kThreads) {
    squares = fmaf(row[c], row[c], squares);
  }
  const float mean = SumOverBlock(squares) / static_cast<float>(channels);
  const float scale = 1.0f / sqrtf(mean + epsilon);
  auto* to = reinterpret_cast<__nv_bfloat16*>(out.data + blockIdx.x * out.row_stride);
  for (int64_t c = threadIdx.x; c < channels; c += kThreads) {
    to[c] = __float2bfloat16_rn(row[c] * scale * weight.data[c]);
  }
}

}  // namespace

absl::Status FeatureProjection(const FeatureProjectionArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateFeatureProjection(args));
  if (args.taps.rows == 0) {
    return absl::OkStatus();
  }
  const View2<float> fused{args.scratch.data, args.taps.rows, args.scratch.columns, args.scratch.row_stride};
  RETURN_IF_ERROR(Linear({args.taps, args.weight, fused}, stream));
  return LaunchOverlapped("feature_projection", NormToBFloat16,
                          {.grid = static_cast<unsigned>(args.taps.rows), .block = kThreads},
                          stream.cuda_stream,
                          View2<const float>{fused.data, fused.rows, fused.columns, fused.row_stride},
                          args.norm_weight, args.epsilon, args.out);
}

}  // namespace arborist::kernels::cuda
