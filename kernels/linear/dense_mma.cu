#include <cuda_runtime.h>

#include <bit>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/block_cluster.cuh"
#include "kernels/linear/dense_cuda.h"
#include "kernels/linear/mma_tile.cuh"

namespace arborist::kernels::cuda {
namespace {

struct Work {
  DenseArgs args;
  int ranks;  // a power of two
  int ranks_log2;
  int row_tiles;
  bool x_aligned;
  bool weight_aligned;
};

// Each rank joins its share of the rows, from rank 0 up, and writes it.
template <typename Tile, int kRanks>
__device__ inline void JoinRanks(const float* result, int rank, int rows, int tokens, float* out,
                                 int64_t out_stride) {
  constexpr int kShare = Tile::kRows / kRanks;
  for (int i = static_cast<int>(threadIdx.x); i < tokens * (kShare / 4); i += Tile::kThreads) {
    const int t = i / (kShare / 4);
    const int r = rank * kShare + i % (kShare / 4) * 4;
    const uint32_t at = SharedAddress(result + t * Tile::kResultPitch + r);
    float4 part[kRanks];
#pragma unroll
    for (int p = 0; p < kRanks; ++p) {
      part[p] = LoadFromBlock4(at, p);
    }
    float4 sum = part[0];
#pragma unroll
    for (int p = 1; p < kRanks; ++p) {
      sum = make_float4(sum.x + part[p].x, sum.y + part[p].y, sum.z + part[p].z, sum.w + part[p].w);
    }
    const float joined[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (r + j < rows) {
        out[t * out_stride + r + j] = joined[j];
      }
    }
  }
}

// A block is (rank, token tile, head and row tile), fastest first: the blocks of a row tile run close
// together, so that its weights come from memory once.
template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) Multiply(const __grid_constant__ Work work) {
  extern __shared__ __align__(128) char shared[];
  LetNextKernelStart();
  const DenseArgs& a = work.args;
  const int rank = static_cast<int>(blockIdx.x);
  const int64_t token = static_cast<int64_t>(blockIdx.y) * Tile::kTokens;
  const int64_t head = static_cast<int>(blockIdx.z) / work.row_tiles;
  const int64_t row = static_cast<int64_t>(static_cast<int>(blockIdx.z) % work.row_tiles) * Tile::kRows;
  const int inputs = static_cast<int>(a.weight.columns);
  const int steps = (inputs + kMmaStep - 1) / kMmaStep;
  const int rows = static_cast<int>(min(a.outputs - row, static_cast<int64_t>(Tile::kRows)));
  const int tokens = static_cast<int>(min(a.tokens - token, static_cast<int64_t>(Tile::kTokens)));
  const MmaOperands in{
      .x = a.x + token * a.x_row_stride + head * a.x_head_stride,
      .x_stride = a.x_row_stride,
      .tokens = tokens,
      .x_aligned = work.x_aligned,
      .weight = static_cast<const uint16_t*>(a.weight.data) + (head * a.outputs + row) * inputs,
      .rows = rows,
      .weight_aligned = work.weight_aligned,
      .inputs = inputs};
  Tile tile;
  MultiplySteps(in, steps * rank >> work.ranks_log2, steps * (rank + 1) >> work.ranks_log2, shared, tile);

  float* out = a.out + token * a.out_row_stride + head * a.out_head_stride + row;
  if (work.ranks == 1) {
    ForEachResult(tile, [&](int r, int t, float value) {
      if (r < rows && t < tokens) {
        out[t * a.out_row_stride + r] = value;
      }
    });
    return;
  }
  __syncthreads();  // the last step is used up
  auto* result = reinterpret_cast<float*>(shared);
  ForEachResult(tile, [&](int r, int t, float value) { result[t * Tile::kResultPitch + r] = value; });
  ClusterBarrier();
  switch (work.ranks) {
    case 2:
      JoinRanks<Tile, 2>(result, rank, rows, tokens, out, a.out_row_stride);
      break;
    case 4:
      JoinRanks<Tile, 4>(result, rank, rows, tokens, out, a.out_row_stride);
      break;
    default:
      JoinRanks<Tile, 8>(result, rank, rows, tokens, out, a.out_row_stride);
  }
  LeaveTogether();
}

template <typename Tile>
absl::Status Launch(Work work, cudaStream_t stream) {
  work.row_tiles = static_cast<int>(CeilDiv(work.args.outputs, Tile::kRows));
  RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(Multiply<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes),
      "linear"));
  const KernelShape shape{.grid = dim3(static_cast<unsigned>(work.ranks),
                                       static_cast<unsigned>(CeilDiv(work.args.tokens, Tile::kTokens)),
                                       static_cast<unsigned>(work.row_tiles * work.args.heads)),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kSharedBytes,
                          .cluster = static_cast<unsigned>(work.ranks)};
  return LaunchOverlapped("linear", Multiply<Tile>, shape, stream, work);
}

absl::Status LaunchPlan(const DensePlan& plan, const Work& work, cudaStream_t stream) {
  switch (plan.rows * 1000 + plan.tokens) {
    case 64008:
      return Launch<MmaTile<1, 4, 1, 1>>(work, stream);
    case 64016:
      return Launch<MmaTile<1, 4, 2, 1>>(work, stream);
    case 64024:
      return Launch<MmaTile<1, 4, 3, 1>>(work, stream);
    case 64040:
      // Tokens are fetched a stage ahead, so stages are long: of two or three blocks that an SM holds.
      return plan.two_an_sm ? Launch<MmaTile<1, 4, 5, 1, 4>>(work, stream)
                            : Launch<MmaTile<1, 4, 5, 1, 3>>(work, stream);
    case 128040:
      return Launch<MmaTile<2, 4, 5, 1>>(work, stream);
    case 128064:
      return Launch<MmaTile<4, 2, 4, 2>>(work, stream);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("linear: no tile of ", plan.rows, " rows and ", plan.tokens, " tokens"));
  }
}

bool Aligned(const void* data, int64_t row_bytes) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && row_bytes % 16 == 0;
}

}  // namespace

absl::Status DenseMma(const DenseArgs& args, const DensePlan& plan, void* cuda_stream) {
  auto* stream = static_cast<cudaStream_t>(cuda_stream);
  const Work work{.args = args,
                  .ranks = plan.ranks,
                  .ranks_log2 = std::countr_zero(static_cast<unsigned>(plan.ranks)),
                  .row_tiles = 0,
                  .x_aligned = Aligned(args.x, args.x_row_stride * 4) && args.x_head_stride % 4 == 0,
                  .weight_aligned = Aligned(args.weight.data, args.weight.columns * 2)};
  return LaunchPlan(plan, work, stream);
}

}  // namespace arborist::kernels::cuda
