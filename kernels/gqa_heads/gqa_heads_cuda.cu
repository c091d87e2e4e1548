#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "kernels/gqa_heads/gqa_heads.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"

namespace arborist::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxHeadDim = 256;
constexpr int kMostEach = kMaxHeadDim / 32;

// One vector of a row: where it comes from, where it goes and what happens on the way.
struct Vector {
  const float* in;
  float* out;  // null: nowhere
  View1<const float> norm;
  bool rotated;
};

__device__ float* Place(const GqaHeadsArgs& args, int64_t row, int64_t head, const View3<float>& block,
                        float* plane) {
  if (row < block.rows) {
    return block.at(row, head);
  }
  const int64_t slot = args.slot[row - block.rows];
  return slot < 0 || slot >= args.plane_rows ? nullptr : plane + (slot * block.heads + head) * block.columns;
}

// Heads of a row are counted queries first, then keys, then values.
__device__ Vector VectorOf(const GqaHeadsArgs& args, int64_t row, int64_t head) {
  const int64_t dim = args.key.columns, heads = args.query.heads, kv_heads = args.key.heads;
  if (head < heads) {
    return row < args.key.rows
               ? Vector{args.query_in.row(row) + head * dim, args.query.at(row, head), args.query_norm, true}
               : Vector{nullptr, nullptr, {}, false};
  }
  if (head < heads + kv_heads) {
    const int64_t h = head - heads;
    return {args.key_in.row(row) + h * dim, Place(args, row, h, args.key, args.key_plane), args.key_norm,
            true};
  }
  const int64_t h = head - heads - kv_heads;
  return {args.value_in.row(row) + h * dim, Place(args, row, h, args.value, args.value_plane), {}, false};
}

// A warp has a vector; lane l holds elements l, l + 32 ... Squares are summed by ascending element in a lane,
// then over lanes by halves: head_dim alone decides the order.
__global__ void __launch_bounds__(32 * kWarps) PlaceHeads(const __grid_constant__ GqaHeadsArgs args) {
  LetNextKernelStart();
  WaitForKernelBefore();
  __shared__ float normed[kWarps][kMaxHeadDim];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t of_row = args.query.heads + 2 * args.key.heads;
  const int64_t index = int64_t{blockIdx.x} * kWarps + warp;
  if (index >= args.key_in.rows * of_row) {
    return;
  }
  const int64_t row = index / of_row;
  const Vector vector = VectorOf(args, row, index % of_row);
  if (vector.out == nullptr) {
    return;
  }
  const int dim = static_cast<int>(args.key.columns), half = dim / 2;
  float x[kMostEach];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    const int c = lane + 32 * i;
    x[i] = c < dim ? vector.in[c] : 0.0f;
    squares = fmaf(x[i], x[i], squares);
  }
  if (vector.norm.size > 0) {
    for (int step = 16; step > 0; step /= 2) {
      squares += __shfl_xor_sync(~0u, squares, step);
    }
    const float inverse = 1.0f / sqrtf(squares / static_cast<float>(dim) + args.epsilon);
#pragma unroll
    for (int i = 0; i < kMostEach; ++i) {
      const int c = lane + 32 * i;
      x[i] = c < dim ? x[i] * inverse * vector.norm[c] : 0.0f;
    }
  }
  const int64_t position = args.position[row];
  if (!vector.rotated || position < 0 || position >= args.cosine.rows) {
#pragma unroll
    for (int i = 0; i < kMostEach; ++i) {
      if (lane + 32 * i < dim) {
        vector.out[lane + 32 * i] = x[i];
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kMostEach; ++i) {
    if (lane + 32 * i < dim) {
      normed[warp][lane + 32 * i] = x[i];
    }
  }
  __syncwarp();
  const bool interleaved = args.pairing == RopePairing::kInterleaved;
  for (int i = lane; i < half; i += 32) {
    const int first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + half;
    const float a = normed[warp][first], b = normed[warp][second];
    const float c = args.cosine.row(position)[i], s = args.sine.row(position)[i];
    vector.out[first] = fmaf(a, c, -(b * s));
    vector.out[second] = fmaf(b, c, a * s);
  }
}

}  // namespace

absl::Status GqaHeads(const GqaHeadsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateGqaHeadsShapes(args));
  const int64_t vectors = args.key_in.rows * (args.query.heads + 2 * args.key.heads);
  if (vectors == 0) {
    return absl::OkStatus();
  }
  return LaunchOverlapped(
      "gqa_heads", PlaceHeads,
      {.grid = static_cast<unsigned>((vectors + kWarps - 1) / kWarps), .block = 32 * kWarps},
      stream.cuda_stream, args);
}

}  // namespace arborist::kernels::cuda
