#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/mla_latents/mla_latents.h"
#include "kernels/rms_norm/norm_order.cuh"
#include "kernels/row_items/row_items.cuh"

// A block has a row's query latent or its key row. Every operation is that of rms_norm, rope and kv_append in
// its order, so bits are theirs.
namespace arborist::kernels::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr int kMostQuads = 7;  // of a thread
constexpr int64_t kMostColumns = 4 * kMostThreads * kMostQuads;
static_assert(NormThreads(kMostColumns) == kMostThreads);

__device__ void Put(float value, float* to) { *to = value; }
__device__ void Put(float value, BFloat16* to) { *to = ToBFloat16(value); }

// A thread's quads of a row, or of the weights beside it; zeros where it has none.
struct Quads {
  template <bool kAligned>
  __device__ void Load(const float* row, int64_t columns) {
    const int threads = NormThreads(columns);
    const auto first = static_cast<uint32_t>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kMostQuads; ++i) {
      const uint32_t quad = first + i * threads;
      v[i] = first < threads && 4 * int64_t{quad} < columns ? LoadQuad<kAligned>(row, quad, columns)
                                                            : make_float4(0, 0, 0, 0);
    }
  }
  float4 v[kMostQuads];
};

// Normed columns c of x go to put(c, value), if `wanted`: nothing that is read depends on that, so that it
// may still be on its way. All threads of the block.
template <bool kAligned, typename Put>
__device__ void NormRow(const float* x, int64_t columns, const Quads& weight, float epsilon, bool wanted,
                        const Put& put) {
  const int threads = NormThreads(columns);
  Quads held;
  held.Load<kAligned>(x, columns);
  float4 squares = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kMostQuads; ++i) {
    AddSquares(held.v[i], squares);
  }
  __shared__ float warps[kMostThreads / 32];
  float sum = SumOfWarp(squares);
  if (threads > 32) {
    if (threadIdx.x % 32 == 0) {
      warps[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    sum = warps[0];
    for (int i = 1; i < threads / 32; ++i) {
      sum += warps[i];
    }
  }
  if (static_cast<int>(threadIdx.x) >= threads || !wanted) {
    return;
  }
  const float inverse = InverseNorm(sum, columns, epsilon);
#pragma unroll
  for (int i = 0; i < kMostQuads; ++i) {
    const int64_t c = 4 * int64_t{threadIdx.x + static_cast<uint32_t>(i * threads)};
    const float values[4] = {held.v[i].x, held.v[i].y, held.v[i].z, held.v[i].w};
    const float scales[4] = {weight.v[i].x, weight.v[i].y, weight.v[i].z, weight.v[i].w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (c + j < columns) {
        put(c + j, (values[j] * inverse) * scales[j]);
      }
    }
  }
}

// Rotated or, at a position outside the tables, as it is.
template <typename T>
__device__ void PlaceRope(const MlaLatentsArgs& args, int64_t row, bool wanted, T* out) {
  const float* x = args.key.row(row) + args.key_norm.size;
  const int pairs = static_cast<int>(args.cosine.columns);
  const int64_t position = args.position[row];
  const bool rotated = position >= 0 && position < args.cosine.rows;
  const bool interleaved = args.pairing == RopePairing::kInterleaved;
  // From the last threads down: the first ones have the norm.
  for (int i = static_cast<int>(blockDim.x - 1 - threadIdx.x); i < pairs; i += static_cast<int>(blockDim.x)) {
    const int first = interleaved ? 2 * i : i, second = interleaved ? first + 1 : first + pairs;
    float a = x[first], b = x[second];
    if (rotated) {
      const float cosine = args.cosine.row(position)[i], sine = args.sine.row(position)[i];
      const float turned = fmaf(a, cosine, -(b * sine));
      b = fmaf(b, cosine, a * sine);
      a = turned;
    }
    if (wanted) {
      Put(a, out + first);
      Put(b, out + second);
    }
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kMostThreads) PlaceLatents(const __grid_constant__ MlaLatentsArgs args) {
  LetNextKernelStart();
  const bool of_query = blockIdx.y == 1;
  const View1<const float> norm = of_query ? args.query_norm : args.key_norm;
  Quads weight;
  weight.Load<kAligned>(norm.data, norm.size);
  WaitForKernelBefore();
  const int64_t row = blockIdx.x;
  if (of_query) {
    float* x = args.query.row(row);
    NormRow<kAligned>(x, norm.size, weight, args.epsilon, true,
                      [&](int64_t c, float value) { x[c] = value; });
    return;
  }
  const int64_t slot = args.slot[row];
  const bool wanted = slot >= 0 && slot < args.slots;
  T* out = static_cast<T*>(args.plane) + (wanted ? slot * args.key.columns : 0);
  PlaceRope(args, row, wanted, out + args.key_norm.size);
  NormRow<kAligned>(args.key.row(row), norm.size, weight, args.epsilon, wanted,
                    [&](int64_t c, float value) { Put(value, out + c); });
}

template <typename T>
absl::Status Launch(const MlaLatentsArgs& args, void* stream) {
  const dim3 grid(static_cast<unsigned>(args.key.rows), args.query.columns > 0 ? 2 : 1);
  const int threads = std::max({64, NormThreads(args.query.columns), NormThreads(args.key_norm.size)});
  const KernelShape shape{.grid = grid, .block = static_cast<unsigned>(threads)};
  const View2<float> latent{args.key.data, args.key.rows, args.key_norm.size, args.key.row_stride};
  const bool aligned = QuadsAlign(latent) && (args.query.columns == 0 || QuadsAlign(args.query)) &&
                       reinterpret_cast<uintptr_t>(args.key_norm.data) % sizeof(float4) == 0 &&
                       reinterpret_cast<uintptr_t>(args.query_norm.data) % sizeof(float4) == 0;
  return aligned ? LaunchOverlapped("mla_latents", PlaceLatents<T, true>, shape, stream, args)
                 : LaunchOverlapped("mla_latents", PlaceLatents<T, false>, shape, stream, args);
}

}  // namespace

absl::Status MlaLatents(const MlaLatentsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMlaLatents(args));
  if (const int64_t most = std::max(args.query.columns, args.key_norm.size); most > kMostColumns) {
    return absl::InvalidArgumentError(absl::StrCat("query.columns or key_norm.size=", most,
                                                   ", expected at most ", kMostColumns, " on CUDA"));
  }
  if (args.key.rows == 0) {
    return absl::OkStatus();
  }
  return args.plane_dtype == DType::kBF16 ? Launch<BFloat16>(args, stream.cuda_stream)
                                          : Launch<float>(args, stream.cuda_stream);
}

}  // namespace arborist::kernels::cuda
