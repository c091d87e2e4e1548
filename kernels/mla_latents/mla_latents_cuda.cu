#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/mla_latents/mla_latents.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// 1 / rms of a row. Thread t adds the squares of columns t, t + 256 ... in ascending order; then the lanes of
// a warp by halves, then warps in order: the number of columns alone decides.
__device__ float InverseNorm(const float* x, int columns, float epsilon) {
  __shared__ float warps[kWarps];
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    sum = fmaf(x[c], x[c], sum);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  }
  if (threadIdx.x % 32 == 0) {
    warps[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  sum = warps[0];
#pragma unroll
  for (int i = 1; i < kWarps; ++i) {
    sum += warps[i];
  }
  return 1.0f / sqrtf(sum / static_cast<float>(columns) + epsilon);
}

__device__ void Put(float value, float* to) { *to = value; }
__device__ void Put(float value, BFloat16* to) { *to = ToBFloat16(value); }

__device__ void NormQuery(const MlaLatentsArgs& args, int64_t row) {
  float* x = args.query.row(row);
  const int columns = static_cast<int>(args.query.columns);
  const float inverse = InverseNorm(x, columns, args.epsilon);
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    x[c] = (x[c] * inverse) * args.query_norm[c];
  }
}

template <typename T>
__device__ void PlaceKey(const MlaLatentsArgs& args, int64_t row) {
  const int64_t slot = args.slot[row];
  if (slot < 0 || slot >= args.slots) {
    return;
  }
  const float* x = args.key.row(row);
  T* out = static_cast<T*>(args.plane) + slot * args.key.columns;
  const int latent = static_cast<int>(args.key_norm.size), pairs = static_cast<int>(args.cosine.columns);
  const float inverse = InverseNorm(x, latent, args.epsilon);
  for (int c = threadIdx.x; c < latent; c += kThreads) {
    Put((x[c] * inverse) * args.key_norm[c], out + c);
  }
  const int64_t position = args.position[row];
  const bool rotated = position >= 0 && position < args.cosine.rows;
  const bool interleaved = args.pairing == RopePairing::kInterleaved;
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    const int first = latent + (interleaved ? 2 * i : i), second = interleaved ? first + 1 : first + pairs;
    const float a = x[first], b = x[second];
    const float c = rotated ? args.cosine.row(position)[i] : 1.0f,
                s = rotated ? args.sine.row(position)[i] : 0.0f;
    Put(rotated ? fmaf(a, c, -(b * s)) : a, out + first);
    Put(rotated ? fmaf(b, c, a * s) : b, out + second);
  }
}

// A block has a row's query latent or its key row.
template <typename T>
__global__ void __launch_bounds__(kThreads) PlaceLatents(const __grid_constant__ MlaLatentsArgs args) {
  if (blockIdx.y == 0) {
    PlaceKey<T>(args, blockIdx.x);
  } else {
    NormQuery(args, blockIdx.x);
  }
}

}  // namespace

absl::Status MlaLatents(const MlaLatentsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMlaLatents(args));
  if (args.key.rows == 0) {
    return absl::OkStatus();
  }
  const dim3 grid(static_cast<unsigned>(args.key.rows), args.query.columns > 0 ? 2 : 1);
  const auto kernel = args.plane_dtype == DType::kBF16 ? PlaceLatents<BFloat16> : PlaceLatents<float>;
  kernel<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream.cuda_stream)>>>(args);
  return LaunchStatus("mla_latents");
}

}  // namespace arborist::kernels::cuda
