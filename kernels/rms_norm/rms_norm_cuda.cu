#include <algorithm>

#include "common/base/status_macros.h"
#include "kernels/rms_norm/norm_order.cuh"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/row_items/row_items.cuh"

// Alignment, rows and their number change nothing in the order of norm_order.cuh.
namespace arborist::kernels::cuda {
namespace {

// The sum over the threads of a row, in every thread of it.
template <int kThreads>
__device__ float SumOfRow(const float4& lanes) {
  float sum = SumOfWarp(lanes);
  if constexpr (kThreads > 32) {
    __shared__ float warps[kThreads / 32];
    if (threadIdx.x % 32 == 0) {
      warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    sum = warps[0];
#pragma unroll
    for (int i = 1; i < kThreads / 32; ++i) {
      sum += warps[i];
    }
  }
  return sum;
}

// Where a row comes from.
struct PlainRows {
  RmsNormArgs args;
  template <bool kAligned>
  __device__ float4 Load(int64_t row, uint32_t quad) const {
    return LoadQuad<kAligned>(args.x.row(row), quad, args.x.columns);
  }
};

// Rows that become a sum first, which is kept.
struct SummedRows {
  RmsNormArgs args;
  View2<const float> from;
  float* into;        // args.x
  View2<float> copy;  // columns 0: none
  template <bool kAligned>
  __device__ float4 Load(int64_t row, uint32_t quad) const {
    const int64_t columns = args.x.columns;
    const float4 a = LoadQuad<kAligned>(args.x.row(row), quad, columns),
                 b = LoadQuad<kAligned>(from.row(row), quad, columns);
    const float4 sum = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    StoreQuad<kAligned>(into + row * args.x.row_stride, quad, columns, sum);
    if (copy.columns > 0) {
      StoreQuad<kAligned>(copy.row(row), quad, columns, sum);
    }
    return sum;
  }
};

__device__ float4 Scale(const float4& x, float inverse, const float4& weight) {
  return make_float4((x.x * inverse) * weight.x, (x.y * inverse) * weight.y, (x.z * inverse) * weight.z,
                     (x.w * inverse) * weight.w);
}

// Threads of a block: short rows share one.
constexpr int BlockOf(int threads, int quads) { return std::max(threads, quads == 1 ? 128 : 64); }

// kThreads threads keep a row in registers, kQuads quads each.
template <int kThreads, int kQuads, bool kAligned, typename Source>
__global__ void __launch_bounds__(BlockOf(kThreads, kQuads)) NormRows(Source source) {
  LetNextKernelStart();
  const RmsNormArgs& args = source.args;
  constexpr int kRows = BlockOf(kThreads, kQuads) / kThreads;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kThreads;
  if (row >= args.x.rows) {
    return;  // only where a warp has a row of its own
  }
  const uint32_t first = threadIdx.x % kThreads;
  const int64_t columns = args.x.columns;
  float4 x[kQuads], weight[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = first + i * kThreads;
    if (4 * int64_t{quad} < columns) {
      weight[i] = LoadQuad<kAligned>(args.weight.data, quad, columns);
    }
  }
  WaitForKernelBefore();
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = first + i * kThreads;
    x[i] = 4 * int64_t{quad} < columns ? source.template Load<kAligned>(row, quad) : make_float4(0, 0, 0, 0);
  }
  float4 squares = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    AddSquares(x[i], squares);
  }
  const float inverse = InverseNorm(SumOfRow<kThreads>(squares), columns, args.epsilon);
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const uint32_t quad = first + i * kThreads;
    if (4 * int64_t{quad} < columns) {
      StoreQuad<kAligned>(args.out.row(row), quad, columns, Scale(x[i], inverse, weight[i]));
    }
  }
}

// Rows too long for registers are read twice.
template <int kThreads, bool kAligned, typename Source>
__global__ void __launch_bounds__(kThreads) NormLongRows(Source source) {
  LetNextKernelStart();
  WaitForKernelBefore();
  const RmsNormArgs& args = source.args;
  const int64_t row = blockIdx.x, columns = args.x.columns;
  float4 squares = make_float4(0, 0, 0, 0);
  for (uint32_t quad = threadIdx.x; 4 * int64_t{quad} < columns; quad += kThreads) {
    AddSquares(source.template Load<kAligned>(row, quad), squares);
  }
  const float inverse = InverseNorm(SumOfRow<kThreads>(squares), columns, args.epsilon);
  for (uint32_t quad = threadIdx.x; 4 * int64_t{quad} < columns; quad += kThreads) {
    const float4 x = LoadQuad<kAligned>(args.x.row(row), quad, columns);
    const float4 weight = LoadQuad<kAligned>(args.weight.data, quad, columns);
    StoreQuad<kAligned>(args.out.row(row), quad, columns, Scale(x, inverse, weight));
  }
}

template <int kThreads, int kQuads, bool kAligned, typename Source>
absl::Status LaunchRows(const Source& source, const char* what, void* stream) {
  constexpr int kRows = BlockOf(kThreads, kQuads) / kThreads;
  static_assert(NormThreads(4 * kThreads * kQuads) == kThreads);
  const auto blocks = static_cast<uint32_t>((source.args.x.rows + kRows - 1) / kRows);
  return LaunchOverlapped(what, NormRows<kThreads, kQuads, kAligned, Source>,
                          {.grid = blocks, .block = BlockOf(kThreads, kQuads)}, stream, source);
}

template <bool kAligned, typename Source>
absl::Status Launch(const Source& source, const char* what, void* stream) {
  const int64_t columns = source.args.x.columns;
  if (columns <= 128) {
    return LaunchRows<32, 1, kAligned>(source, what, stream);
  }
  if (columns <= 512) {
    return LaunchRows<32, 4, kAligned>(source, what, stream);
  }
  if (columns <= 2048) {
    return LaunchRows<128, 4, kAligned>(source, what, stream);
  }
  if (columns <= 4096) {
    return LaunchRows<256, 4, kAligned>(source, what, stream);
  }
  if (columns <= 7168) {
    return LaunchRows<256, 7, kAligned>(source, what, stream);
  }
  if (columns <= 16384) {
    return LaunchRows<512, 8, kAligned>(source, what, stream);
  }
  return LaunchOverlapped(what, NormLongRows<1024, kAligned, Source>,
                          {.grid = static_cast<uint32_t>(source.args.x.rows), .block = 1024}, stream, source);
}

template <typename Source>
absl::Status LaunchAny(const Source& source, bool aligned, const char* what, StreamView stream) {
  const RmsNormArgs& args = source.args;
  if (args.x.rows == 0) {
    return absl::OkStatus();
  }
  aligned = aligned && QuadsAlign(args.x) && QuadsAlign(args.out) &&
            reinterpret_cast<uintptr_t>(args.weight.data) % sizeof(float4) == 0;
  return aligned ? Launch<true>(source, what, stream.cuda_stream)
                 : Launch<false>(source, what, stream.cuda_stream);
}

}  // namespace

absl::Status RmsNorm(const RmsNormArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateRmsNorm(args));
  return LaunchAny(PlainRows{args}, true, "rms_norm", stream);
}

absl::Status AddRmsNorm(const AddRmsNormArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateAddRmsNorm(args));
  return LaunchAny(SummedRows{NormOf(args), args.from, args.into.data, args.copy},
                   QuadsAlign(args.from) && (args.copy.columns == 0 || QuadsAlign(args.copy)), "add_rms_norm",
                   stream);
}

}  // namespace arborist::kernels::cuda
