#include <cuda_runtime.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/moe_experts/down_mma.cuh"
#include "kernels/moe_experts/gated_mma.cuh"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_experts/moe_fma.cuh"

namespace arborist::kernels::cuda {
namespace {

// What every GPU that we compile for gives a block.
constexpr int kMaxSharedBytes = 99 * 1024;

using Kernel = void (*)(ExpertsPiece);

int Multiprocessors() {
  int device = 0;
  int count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return count;
}

absl::Status Launch(Kernel kernel, int64_t blocks, int threads, int shared_bytes, const ExpertsPiece& piece,
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
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes,
           static_cast<cudaStream_t>(stream.cuda_stream)>>>(piece);
  return LaunchStatus(name);
}

absl::Status LaunchMma(const ExpertsPiece& piece, StreamView stream) {
  const int pairs = piece.rows * piece.top_k;
  const int64_t items = MaxRoutedItems(pairs, piece.expert_count, GatedMma::kItemRows);
  const int64_t units =
      items * CeilDiv(piece.width, GatedMma::kColumns) +
      CeilDiv(piece.rows, GatedMma::kItemRows) * CeilDiv(piece.shared_width, GatedMma::kColumns);
  RETURN_IF_ERROR(Launch(GatedMmaKernel, std::min<int64_t>(units, 2 * Multiprocessors()), GatedMma::kThreads,
                         GatedMma::SharedBytes(pairs, piece.expert_count), piece, stream,
                         "moe_experts: gate and up"));
  // Few outputs: more warps a block, fewer rounds. The order of the sums is the same.
  const int64_t blocks = CeilDiv(piece.hidden, kBlockOutputs);
  if (blocks < Multiprocessors()) {
    using Shape = DownMma<8>;
    return Launch(DownMmaKernel<Shape>, blocks, Shape::kThreads,
                  Shape::SharedBytes(piece.rows, pairs, piece.expert_count), piece, stream,
                  "moe_experts: down");
  }
  using Shape = DownMma<4>;
  return Launch(DownMmaKernel<Shape>, blocks, Shape::kThreads,
                Shape::SharedBytes(piece.rows, pairs, piece.expert_count), piece, stream,
                "moe_experts: down");
}

template <typename Weight>
absl::Status LaunchFma(const ExpertsPiece& piece, StreamView stream) {
  const int pairs = piece.rows * piece.top_k;
  const int64_t units = int64_t{MaxRoutedItems(pairs, piece.expert_count, MoeFma::kItemRows)} * piece.width +
                        CeilDiv(piece.rows, MoeFma::kItemRows) * piece.shared_width;
  RETURN_IF_ERROR(Launch(GatedFmaKernel<Weight>,
                         std::min<int64_t>(CeilDiv(units, MoeFma::kWarps), 4 * Multiprocessors()),
                         MoeFma::kThreads, MoeFma::GatedSharedBytes(pairs, piece.expert_count), piece, stream,
                         "moe_experts: gate and up"));
  return Launch(DownFmaKernel<Weight>, CeilDiv(piece.hidden, kBlockOutputs), MoeFma::kThreads,
                MoeFma::DownSharedBytes(piece.rows, pairs, piece.expert_count), piece, stream,
                "moe_experts: down");
}

absl::Status LaunchPiece(const ExpertsPiece& piece, DType dtype, StreamView stream) {
  switch (dtype) {
    case DType::kBF16:
      return LaunchMma(piece, stream);
    case DType::kF32:
      return LaunchFma<float>(piece, stream);
    default:  // validated: kF16
      return LaunchFma<__half>(piece, stream);
  }
}

// As many rows as a block can sort, and keep the sums of.
int PieceRows(int top_k, int experts) {
  int rows = std::clamp(kMaxPairs / std::max(1, top_k), 1, kMaxPieceRows);
  const auto bytes = [&] {
    const int pairs = rows * top_k;
    return std::max({GatedMma::SharedBytes(pairs, experts), DownMma<8>::SharedBytes(rows, pairs, experts),
                     DownMma<4>::SharedBytes(rows, pairs, experts),
                     MoeFma::DownSharedBytes(rows, pairs, experts)});
  };
  while (rows > 1 && bytes() > kMaxSharedBytes - 1024) {  // static shared memory beside it
    rows /= 2;
  }
  return rows;
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
  const int most = PieceRows(top_k, experts);
  for (int64_t first = 0; first < rows; first += most) {
    const ExpertsPiece piece{
        .x = args.x.row(first),
        .x_stride = args.x.row_stride,
        .x_aligned = reinterpret_cast<uintptr_t>(args.x.data) % 16 == 0 && args.x.row_stride % 4 == 0,
        .expert = args.expert.row(first),
        .expert_stride = args.expert.row_stride,
        .weight = args.weight.row(first),
        .weight_stride = args.weight.row_stride,
        .experts = args.experts.data,
        .expert_count = experts,
        .top_k = top_k,
        .hidden = static_cast<int>(args.x.columns),
        .width = static_cast<int>(args.width),
        .shared = args.shared != nullptr ? *args.shared : ExpertWeights{},
        .shared_width = static_cast<int>(shared_width),
        .live_rows = args.live_rows,
        .first_row = static_cast<int>(first),
        .rows = static_cast<int>(std::min<int64_t>(most, rows - first)),
        .out = args.out.row(first),
        .out_stride = args.out.row_stride,
        .inner = args.scratch.data,
        .shared_inner = args.scratch.data + RoundUp(rows * top_k * args.width * 4, 64)};
    RETURN_IF_ERROR(LaunchPiece(piece, args.weight_dtype, stream));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cuda
