#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/base/math.h"
#include "common/device/cuda_status.h"
#include "kernels/linear/dense_cuda.h"
#include "kernels/linear/lane_sums.cuh"

// Few tokens, bf16 weights. A group of one or four warps owns some weight rows; each of its lanes owns eight
// neighbouring inputs of every 256 or 1024 and asks for several such pieces before it uses the first.
namespace arborist::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kPiece = 8;
// Outputs from which on a group takes four rows: enough groups remain to keep a large GPU's memory busy.
constexpr int64_t kManyOutputs = 4096;

__device__ inline uint4 LoadWeights(const uint16_t* from, bool wanted) {
  uint4 v = {};
  if (wanted) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
  }
  return v;
}

// Of two bf16 in a word.
__device__ inline float Lower(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float Upper(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

template <int kTokens, int kOutputs, int kShare>
__global__ void __launch_bounds__(32 * kWarps, 2) Multiply(const __grid_constant__ DenseArgs a) {
  constexpr int kCount = kOutputs * kTokens;
  constexpr int kAhead = kOutputs == 1 && kTokens < 4 ? 8 / kTokens
                         : kCount == 32               ? 1
                                                      : 2;  // pieces of a row under way
  constexpr int kStride = 32 * kPiece * kShare;
  __shared__ float part[kWarps][kCount];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * kWarps + warp) / kShare * kOutputs;
  const int64_t head = blockIdx.y;
  const int inputs = static_cast<int>(a.weight.columns);
  if (output >= a.outputs) {
    return;
  }
  const uint16_t* weight[kOutputs];
#pragma unroll
  for (int n = 0; n < kOutputs; ++n) {  // past the end: the last one again, not stored
    weight[n] = static_cast<const uint16_t*>(a.weight.data) +
                (head * a.outputs + min(output + n, a.outputs - 1)) * inputs;
  }
  const float* const x = a.x + head * a.x_head_stride;
  float acc[kCount] = {};
#pragma unroll 1
  for (int first = (warp % kShare * 32 + lane) * kPiece; first < inputs; first += kAhead * kStride) {
    uint4 w[kAhead][kOutputs];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int n = 0; n < kOutputs; ++n) {
        w[i][n] = LoadWeights(weight[n] + first + i * kStride, first + i * kStride < inputs);
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int k = first + i * kStride;
      if (k >= inputs) {
        break;
      }
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float* const row = x + min(int64_t{t}, a.tokens - 1) * a.x_row_stride;
        const float4 low = __ldg(reinterpret_cast<const float4*>(row + k));
        const float4 high = __ldg(reinterpret_cast<const float4*>(row + k + 4));
#pragma unroll
        for (int n = 0; n < kOutputs; ++n) {
          float& sum = acc[n * kTokens + t];
          sum = fmaf(low.x, Lower(w[i][n].x), sum);
          sum = fmaf(low.y, Upper(w[i][n].x), sum);
          sum = fmaf(low.z, Lower(w[i][n].y), sum);
          sum = fmaf(low.w, Upper(w[i][n].y), sum);
          sum = fmaf(high.x, Lower(w[i][n].z), sum);
          sum = fmaf(high.y, Upper(w[i][n].z), sum);
          sum = fmaf(high.z, Lower(w[i][n].w), sum);
          sum = fmaf(high.w, Upper(w[i][n].w), sum);
        }
      }
    }
  }
  SumOverLanes(acc, lane);
  float sum = acc[0];
  if constexpr (kShare > 1) {
    if (lane < kCount) {
      part[warp][lane] = sum;
    }
    __syncthreads();
    if (warp % kShare != 0) {
      return;
    }
    if (lane < kCount) {
#pragma unroll
      for (int p = 1; p < kShare; ++p) {
        sum += part[warp + p][lane];
      }
    }
  }
  const int64_t n = output + lane % kCount / kTokens;
  const int64_t t = lane % kTokens;
  if (lane < kCount && n < a.outputs && t < a.tokens) {
    a.out[t * a.out_row_stride + head * a.out_head_stride + n] = sum;
  }
}

template <int kTokens, int kOutputs, int kShare>
void Launch(const DenseArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(CeilDiv(args.outputs, kWarps / kShare * kOutputs)),
                  static_cast<unsigned>(args.heads));
  Multiply<kTokens, kOutputs, kShare><<<grid, 32 * kWarps, 0, stream>>>(args);
}

template <int kTokens>
void LaunchForShape(const DenseArgs& args, cudaStream_t stream) {
  const bool many = args.heads * args.outputs >= kManyOutputs;
  if (args.weight.columns <= 512) {
    many ? Launch<kTokens, 4, 1>(args, stream) : Launch<kTokens, 1, 1>(args, stream);
  } else {
    many ? Launch<kTokens, 4, 4>(args, stream) : Launch<kTokens, 1, 4>(args, stream);
  }
}

}  // namespace

bool SuitsVectors(const DenseArgs& args) {
  return args.weight.dtype == DType::kBF16 && args.weight.columns % kPiece == 0 &&
         reinterpret_cast<uintptr_t>(args.weight.data) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.x) % 16 == 0 && args.x_row_stride % 4 == 0 &&
         args.x_head_stride % 4 == 0;
}

absl::Status DenseVectors(const DenseArgs& args, void* cuda_stream) {
  auto* stream = static_cast<cudaStream_t>(cuda_stream);
  if (args.tokens == 1) {
    LaunchForShape<1>(args, stream);
  } else if (args.tokens == 2) {
    LaunchForShape<2>(args, stream);
  } else if (args.tokens <= 4) {
    LaunchForShape<4>(args, stream);
  } else {
    LaunchForShape<8>(args, stream);
  }
  return LaunchStatus("linear");
}

}  // namespace arborist::kernels::cuda
