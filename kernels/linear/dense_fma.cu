#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "common/base/math.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/linear/dense_cuda.h"
#include "kernels/linear/lane_sums.cuh"

// Weights in fp32 or fp16. A warp computes four outputs of up to eight tokens: lane l owns inputs 4l..4l+3 of
// every 128, one fused multiply-add each in ascending order, and lanes are joined (l, l^16), (l, l^8), ...,
// (l, l^1). So the bits depend on the two vectors alone.
namespace arborist::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kOutputs = 4;

struct Work {
  DenseArgs args;
  bool x_aligned;
  bool weight_aligned;
};

__device__ inline void Load4(const float* from, int64_t left, bool aligned, float (&v)[4]) {
  if (aligned && left >= 4) {
    const float4 f = *reinterpret_cast<const float4*>(from);
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = j < left ? from[j] : 0.0f;
  }
}
__device__ inline void Load4(const __half* from, int64_t left, bool aligned, float (&v)[4]) {
  if (aligned && left >= 4) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&bits.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&bits.y));
    v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
    return;
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = j < left ? __half2float(from[j]) : 0.0f;
  }
}

template <typename Element, int kTokens>
__global__ void __launch_bounds__(32 * kWarps) Multiply(const __grid_constant__ Work work) {
  LetNextKernelStart();
  WaitForKernelBefore();
  const DenseArgs& a = work.args;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t output =
      (static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32) * kOutputs;
  const int64_t token = static_cast<int64_t>(blockIdx.z) * kTokens;
  const int64_t head = blockIdx.y;
  const int64_t inputs = a.weight.columns;
  if (output >= a.outputs) {
    return;
  }
  const float* x[kTokens];
  const Element* weight[kOutputs];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {  // past the end: the last one again, not stored
    x[t] = a.x + min(token + t, a.tokens - 1) * a.x_row_stride + head * a.x_head_stride;
  }
#pragma unroll
  for (int n = 0; n < kOutputs; ++n) {
    weight[n] = static_cast<const Element*>(a.weight.data) +
                (head * a.outputs + min(output + n, a.outputs - 1)) * inputs;
  }
  float acc[kOutputs * kTokens] = {};
#pragma unroll 2
  for (int64_t k = 4 * lane; k < inputs; k += 128) {
    float w[kOutputs][4];
#pragma unroll
    for (int n = 0; n < kOutputs; ++n) {
      Load4(weight[n] + k, inputs - k, work.weight_aligned, w[n]);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      float v[4];
      Load4(x[t] + k, inputs - k, work.x_aligned, v);
#pragma unroll
      for (int n = 0; n < kOutputs; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          acc[n * kTokens + t] = fmaf(v[j], w[n][j], acc[n * kTokens + t]);
        }
      }
    }
  }
  SumOverLanes(acc, lane);
  const int64_t n = output + lane % (kOutputs * kTokens) / kTokens;
  const int64_t t = token + lane % kTokens;
  if (lane < kOutputs * kTokens && n < a.outputs && t < a.tokens) {
    a.out[t * a.out_row_stride + head * a.out_head_stride + n] = acc[0];
  }
}

template <typename Element, int kTokens>
absl::Status Launch(const Work& work, void* stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(work.args.outputs, kWarps * kOutputs)),
                  static_cast<unsigned>(work.args.heads),
                  static_cast<unsigned>(CeilDiv(work.args.tokens, kTokens)));
  return LaunchOverlapped("linear", Multiply<Element, kTokens>, {.grid = grid, .block = 32 * kWarps}, stream,
                          work);
}

template <typename Element>
absl::Status LaunchForTokens(const Work& work, void* stream) {
  return work.args.tokens == 1 ? Launch<Element, 1>(work, stream) : Launch<Element, 8>(work, stream);
}

}  // namespace

absl::Status DenseFma(const DenseArgs& args, void* cuda_stream) {
  const int64_t element = static_cast<int64_t>(ByteSize(args.weight.dtype));
  const Work work{.args = args,
                  .x_aligned = reinterpret_cast<uintptr_t>(args.x) % 16 == 0 && args.x_row_stride % 4 == 0 &&
                               args.x_head_stride % 4 == 0,
                  .weight_aligned = reinterpret_cast<uintptr_t>(args.weight.data) % (4 * element) == 0 &&
                                    args.weight.columns % 4 == 0};
  return args.weight.dtype == DType::kF16 ? LaunchForTokens<__half>(work, cuda_stream)
                                          : LaunchForTokens<float>(work, cuda_stream);
}

}  // namespace arborist::kernels::cuda
