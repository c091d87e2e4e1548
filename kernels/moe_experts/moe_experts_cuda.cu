#include <cuda_runtime.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/moe_experts/down_mma.cuh"
#include "kernels/moe_experts/gated_mma.cuh"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_experts/moe_fma.cuh"

namespace arborist::kernels::cuda {
namespace {

// What every GPU that we compile for gives a block.
constexpr int kMaxSharedBytes = 99 * 1024;

constexpr double kCachedWeightBytes = 16e6;
constexpr int kCachedPieceRows = 32;

using Kernel = void (*)(ExpertsPiece);

int Attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    return 1;
  }
  return value;
}
int Multiprocessors() { return Attribute(cudaDevAttrMultiProcessorCount); }

absl::Status Launch(Kernel kernel, int64_t blocks, int threads, int shared_bytes, const ExpertsPiece& call,
                    StreamView stream, absl::string_view name) {
  if (blocks == 0) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CudaStatus(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes), name));
  // Several blocks an SM: what they copy ahead is what keeps the memory busy.
  RETURN_IF_ERROR(CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                                  cudaSharedmemCarveoutMaxShared),
                             name));
  const KernelShape shape{
      .grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(CeilDiv(call.all_rows, call.rows))),
      .block = static_cast<unsigned>(threads),
      .shared_bytes = static_cast<size_t>(shared_bytes)};
  return LaunchOverlapped(name, kernel, shape, stream.cuda_stream, call);
}

// Rows of a piece of gate and up. Its blocks keep no sums, so a piece may have more rows than one of down,
// and weights are read less often. Where they are read from the second cache, more pieces that sort less are
// faster.
int GatedPieceRows(const ExpertsPiece& call) {
  if (call.rows <= kCachedPieceRows) {
    return call.rows;
  }
  int rows = std::clamp(kMaxPairs / std::max(1, call.top_k), 1, std::min(call.all_rows, kMaxPieceRows));
  while (rows > call.rows &&
         GatedMma<2>::SharedBytes(rows * call.top_k, call.expert_count) > kMaxSharedBytes - 1024) {
    rows = std::max(call.rows, rows / 2);
  }
  return rows;
}

template <typename Shape>
absl::Status LaunchGated(ExpertsPiece call, StreamView stream) {
  call.rows = GatedPieceRows(call);
  const int pairs = call.rows * call.top_k;
  const int64_t items = MaxRoutedItems(pairs, call.expert_count, Shape::kItemRows);
  const int64_t units = items * CeilDiv(call.width, Shape::kColumns) +
                        CeilDiv(call.rows, Shape::kItemRows) * CeilDiv(call.shared_width, Shape::kColumns);
  return Launch(GatedMmaKernel<Shape>, std::min<int64_t>(units, 2 * Multiprocessors()), Shape::kThreads,
                Shape::SharedBytes(pairs, call.expert_count), call, stream, "moe_experts: gate and up");
}

template <typename Shape>
absl::Status LaunchDown(const ExpertsPiece& call, StreamView stream) {
  return Launch(DownMmaKernel<Shape>, CeilDiv(call.hidden, kBlockOutputs), Shape::kThreads,
                Shape::SharedBytes(call.rows, call.rows * call.top_k, call.expert_count), call, stream,
                "moe_experts: down");
}

// The order of the sums is the same in all shapes.
absl::Status LaunchMma(const ExpertsPiece& call, StreamView stream) {
  // Fewer registers, so that all blocks of the second kernel find room beside the first's.
  const bool few_rows = call.all_rows <= 8;
  RETURN_IF_ERROR(few_rows ? LaunchGated<GatedMma<1>>(call, stream) : LaunchGated<GatedMma<2>>(call, stream));
  // Few outputs: more warps a block, fewer rounds.
  if (CeilDiv(call.hidden, kBlockOutputs) < Multiprocessors()) {
    return LaunchDown<DownMma<8, 2>>(call, stream);
  }
  return few_rows ? LaunchDown<DownMma<4, 1>>(call, stream) : LaunchDown<DownMma<4, 2>>(call, stream);
}

template <typename Weight>
absl::Status LaunchFma(const ExpertsPiece& call, StreamView stream) {
  const int pairs = call.rows * call.top_k;
  const int64_t units = int64_t{MaxRoutedItems(pairs, call.expert_count, MoeFma::kItemRows)} * call.width +
                        CeilDiv(call.rows, MoeFma::kItemRows) * call.shared_width;
  RETURN_IF_ERROR(Launch(GatedFmaKernel<Weight>,
                         std::min<int64_t>(CeilDiv(units, MoeFma::kWarps), 8 * Multiprocessors()),
                         MoeFma::kThreads, MoeFma::GatedSharedBytes(pairs, call.expert_count), call, stream,
                         "moe_experts: gate and up"));
  return Launch(DownFmaKernel<Weight>, CeilDiv(call.hidden, kBlockOutputs), MoeFma::kThreads,
                MoeFma::DownSharedBytes(call.rows, pairs, call.expert_count), call, stream,
                "moe_experts: down");
}

absl::Status LaunchPieces(const ExpertsPiece& call, DType dtype, StreamView stream) {
  switch (dtype) {
    case DType::kBF16:
      return LaunchMma(call, stream);
    case DType::kF32:
      return LaunchFma<float>(call, stream);
    default:  // validated: kF16
      return LaunchFma<__half>(call, stream);
  }
}

// Rows of a piece: as many as a block can sort and keep the sums of. Fewer where all experts together fit the
// second cache: reading them again costs little there, and more blocks work.
int PieceRows(int top_k, int experts, double weight_bytes) {
  int rows = std::clamp(kMaxPairs / std::max(1, top_k), 1, kMaxPieceRows);
  const auto bytes = [&] {
    const int pairs = rows * top_k;
    return std::max(
        {GatedMma<2>::SharedBytes(pairs, experts), DownMma<8, 2>::SharedBytes(rows, pairs, experts),
         DownMma<4, 2>::SharedBytes(rows, pairs, experts), MoeFma::DownSharedBytes(rows, pairs, experts)});
  };
  while (rows > 1 && bytes() > kMaxSharedBytes - 1024) {  // static shared memory beside it
    rows /= 2;
  }
  return weight_bytes <= kCachedWeightBytes ? std::min(rows, kCachedPieceRows) : rows;
}

}  // namespace

absl::Status MoeExperts(const MoeExpertsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMoeExpertsShapes(args));
  const int64_t rows = args.x.rows;
  const int64_t shared_width = args.shared != nullptr ? args.shared->gate.rows : 0;
  if (args.experts.size > kMaxCudaExperts || args.expert.columns > kMaxPairs) {
    return absl::InvalidArgumentError(
        absl::StrCat("experts.size=", args.experts.size, ", expert.columns=", args.expert.columns,
                     ", expected at most ", kMaxCudaExperts, " and ", kMaxPairs));
  }
  const size_t needed =
      MoeExpertsCudaScratchBytes(rows, static_cast<int>(args.expert.columns), args.width, shared_width);
  if (args.scratch.size < static_cast<int64_t>(needed)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scratch.size=", args.scratch.size, ", expected at least ", needed));
  }
  // A rank with no part of the experts' width has nothing to sort.
  const int top_k = args.width > 0 ? static_cast<int>(args.expert.columns) : 0;
  const int experts = static_cast<int>(args.experts.size);
  if (rows == 0) {
    return absl::OkStatus();
  }
  const double weight_bytes = 3.0 * static_cast<double>(args.x.columns) *
                              static_cast<double>(experts * args.width + shared_width) *
                              static_cast<double>(ByteSize(args.weight_dtype));
  const ExpertsPiece call{
      .x = args.x.data,
      .x_stride = args.x.row_stride,
      .x_aligned = reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 && args.x.row_stride % 4 == 0,
      .expert = args.expert.data,
      .expert_stride = args.expert.row_stride,
      .weight = args.weight.data,
      .weight_stride = args.weight.row_stride,
      .experts = args.experts.data,
      .expert_count = experts,
      .top_k = top_k,
      .hidden = static_cast<int>(args.x.columns),
      .width = static_cast<int>(args.width),
      .shared = args.shared != nullptr ? *args.shared : ExpertWeights{},
      .shared_width = static_cast<int>(shared_width),
      .live_rows = args.live_rows,
      .all_rows = static_cast<int>(rows),
      .first_row = 0,
      .rows = static_cast<int>(std::min<int64_t>(rows, PieceRows(top_k, experts, weight_bytes))),
      .out = args.out.data,
      .out_stride = args.out.row_stride,
      .inner = args.scratch.data,
      .shared_inner = args.scratch.data + RoundUp(rows * top_k * args.width * 4, 64),
      .inner_bytes = args.weight_dtype == DType::kBF16 ? 2 : 4};
  return LaunchPieces(call, args.weight_dtype, stream);
}

}  // namespace arborist::kernels::cuda
