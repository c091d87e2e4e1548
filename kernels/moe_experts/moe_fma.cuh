#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/moe_experts/expert_rows.cuh"
#include "kernels/moe_experts/item_sums.cuh"

// fp32 and fp16 weights: fp32 products by fma, inner values in fp32. For small models and for checks; the
// weights are read once an item of eight rows.
namespace arborist::kernels::cuda {

struct MoeFma {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kItemRows = 8;
  using Sums = ItemSums<kWarps, kItemRows>;
  using Table = Sums::Table;
  static constexpr int GatedSharedBytes(int pairs, int experts) {
    return 2 * pairs + 16 + RowTableBytes(pairs, experts, kItemRows);
  }
  static constexpr int DownSharedBytes(int rows, int pairs, int experts) {
    return Sums::Bytes(rows) + GatedSharedBytes(pairs, experts);
  }
};

__device__ inline float AsFloat(float value) { return value; }
__device__ inline float AsFloat(__half value) { return __half2float(value); }

// One inner column a warp, for an item's rows: lane l sums inputs l, l + 32, ... in ascending order, then
// the lanes are joined by halves.
template <typename Weight>
__global__ void __launch_bounds__(MoeFma::kThreads)
    GatedFmaKernel(const __grid_constant__ ExpertsPiece call) {
  extern __shared__ uint4 shared[];
  LetNextKernelStart();
  WaitForKernelBefore();
  const ExpertsPiece piece = call.Mine();
  uint4* const behind_table =
      shared + RowTableBytes(piece.rows * piece.top_k, piece.expert_count, MoeFma::kItemRows) / 16;
  const MoeFma::Table table(piece, shared, behind_table);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int warps = static_cast<int>(gridDim.x) * MoeFma::kWarps;
  const int routed = table.routed_items() * piece.width;
  const int units = routed + (table.items() - table.routed_items()) * piece.shared_width;
  for (int u = warp; u < units; u += warps) {
    const bool is_shared = u >= routed;
    const int width = is_shared ? piece.shared_width : piece.width;
    const int at = is_shared ? u - routed : u;
    const int column = at % width;
    const ExpertItem item = table.item(is_shared ? table.routed_items() + at / width : at / width);
    const ExpertWeights& weights = is_shared ? piece.shared : piece.experts[item.expert];
    const Weight* gate_row = static_cast<const Weight*>(weights.gate.data) + int64_t{column} * piece.hidden;
    const Weight* up_row = static_cast<const Weight*>(weights.up.data) + int64_t{column} * piece.hidden;
    const float* row[MoeFma::kItemRows];
#pragma unroll
    for (int i = 0; i < MoeFma::kItemRows; ++i) {  // rows past the end repeat the last one
      row[i] = piece.x + table.row(item, min(i, item.rows - 1)) * piece.x_stride;
    }
    float gate[MoeFma::kItemRows] = {};
    float up[MoeFma::kItemRows] = {};
    for (int k = lane; k < piece.hidden; k += 32) {
      const float gate_weight = AsFloat(gate_row[k]);
      const float up_weight = AsFloat(up_row[k]);
#pragma unroll
      for (int i = 0; i < MoeFma::kItemRows; ++i) {
        if (i < item.rows) {
          const float x = row[i][k];
          gate[i] = fmaf(x, gate_weight, gate[i]);
          up[i] = fmaf(x, up_weight, up[i]);
        }
      }
    }
    float* const inner = reinterpret_cast<float*>(is_shared ? piece.shared_inner : piece.inner);
#pragma unroll
    for (int i = 0; i < MoeFma::kItemRows; ++i) {
      for (int distance = 16; distance > 0; distance /= 2) {
        gate[i] += __shfl_xor_sync(0xffffffffu, gate[i], distance);
        up[i] += __shfl_xor_sync(0xffffffffu, up[i], distance);
      }
      if (lane == i && i < item.rows) {
        inner[int64_t{item.first + i} * width + column] = gate[i] / (1.0f + ExpInline(-gate[i])) * up[i];
      }
    }
  }
}

// An item a warp: lane l has output l % 16 of every second row and sums its inputs in ascending order.
template <typename Weight>
__global__ void __launch_bounds__(MoeFma::kThreads) DownFmaKernel(const __grid_constant__ ExpertsPiece call) {
  constexpr int kRowsOfLane = MoeFma::kItemRows / 2;
  extern __shared__ uint4 shared[];
  LetNextKernelStart();
  WaitForKernelBefore();
  const ExpertsPiece piece = call.Mine();
  MoeFma::Sums sums(piece, shared);
  uint4* const behind_sums = shared + MoeFma::Sums::Bytes(piece.rows) / 16;
  uint4* const behind_table =
      behind_sums + RowTableBytes(piece.rows * piece.top_k, piece.expert_count, MoeFma::kItemRows) / 16;
  const MoeFma::Table table(piece, behind_sums, behind_table);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int output = lane % kBlockOutputs;
  // Outputs past the end repeat the last one; they are not stored.
  const int column = min(static_cast<int>(blockIdx.x) * kBlockOutputs + output, piece.hidden - 1);
  for (int base = 0; base < table.items(); base += MoeFma::kWarps) {
    sums.Describe(piece, table, base + warp);
    if (base + warp < table.items()) {
      const ExpertItem item = table.item(base + warp);
      const bool is_shared = item.expert == piece.expert_count;
      const int width = is_shared ? piece.shared_width : piece.width;
      const WeightView& down = is_shared ? piece.shared.down : piece.experts[item.expert].down;
      const Weight* weight = static_cast<const Weight*>(down.data) + int64_t{column} * width;
      const float* inner = reinterpret_cast<const float*>(is_shared ? piece.shared_inner : piece.inner);
      const float* row[kRowsOfLane];
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i) {
        const int slot = item.first + min(i * 2 + lane / kBlockOutputs, item.rows - 1);
        row[i] = inner + int64_t{slot} * width;
      }
      float sum[kRowsOfLane] = {};
      for (int k = 0; k < width; ++k) {
        const float w = AsFloat(weight[k]);
#pragma unroll
        for (int i = 0; i < kRowsOfLane; ++i) {
          sum[i] = fmaf(row[i][k], w, sum[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kRowsOfLane; ++i) {
        sums.round.product[warp][i * 2 + lane / kBlockOutputs][output] = sum[i];
      }
    }
    sums.AddRound();
  }
  sums.Store(piece);
}

}  // namespace arborist::kernels::cuda
