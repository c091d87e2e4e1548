#include <cuda_runtime_api.h>

#include <numbers>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/tree_attention_mla/cuda_problem.h"
#include "kernels/tree_attention_mla/cuda_scratch.h"

namespace arborist::kernels::cuda {
namespace {

AttentionProblem Problem(const TreeAttentionMlaArgs& args) {
  const CudaScratch scratch =
      CudaScratch::Of(args.query.rows, args.query.heads, args.latent, args.rope, args.TableBlocks());
  std::byte* memory = args.scratch.data;
  auto* acc = reinterpret_cast<float*>(memory);
  memory += scratch.acc_bytes();
  auto* max_sum = reinterpret_cast<float*>(memory);
  memory += scratch.max_sum_bytes();
  auto* query_bf16 = reinterpret_cast<uint16_t*>(memory);
  memory += scratch.query_bytes();
  return {.query = args.query.data,
          .cache = args.cache,
          .slots = args.slots,
          .rows = static_cast<int32_t>(args.query.rows),
          .heads = static_cast<int32_t>(args.query.heads),
          .latent = static_cast<int32_t>(args.latent),
          .width = static_cast<int32_t>(args.latent + args.rope),
          .scale_log2 = args.scale * std::numbers::log2e_v<float>,
          .sequence = args.sequence.data,
          .page_table = args.page_table.data,
          .prefix_blocks = args.prefix_blocks.data,
          .tail_slot = args.tail_slot.data,
          .tail_count = args.tail_count.data,
          .sequences = static_cast<int32_t>(args.page_table.rows),
          .page_rows = args.page_rows,
          .blocks = static_cast<int32_t>(args.TableBlocks()),
          .page_stride = args.page_table.row_stride,
          .tail_stride = args.tail_slot.row_stride,
          .tail_columns = static_cast<int32_t>(args.tail_slot.columns),
          .out = args.out.data,
          .parts = static_cast<int32_t>(scratch.parts),
          .acc_stride = static_cast<int32_t>(scratch.acc_stride()),
          .acc = acc,
          .max_sum = max_sum,
          .query_bf16 = query_bf16,
          .list = reinterpret_cast<int32_t*>(memory),
          .queries_per_tile = 0,
          .queries_per_tail = 0,
          .rows_per_tail = 0,
          .packed = false};
}

}  // namespace

absl::Status TreeAttentionMla(const TreeAttentionMlaArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeAttentionMlaShapes(args));
  const auto needed = static_cast<int64_t>(TreeAttentionMlaCudaScratchBytes(
      args.query.rows, args.query.heads, args.latent, args.rope, args.TableBlocks()));
  if (args.scratch.size < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("scratch.size=", args.scratch.size, ", expected at least ", needed));
  }
  if (args.query.rows == 0) {
    return absl::OkStatus();
  }
  AttentionProblem problem = Problem(args);
  const bool tensor = HasTensorAttention(problem, args.cache_dtype);
  problem.packed = tensor && args.latent == 512;
  if (tensor) {
    return LaunchTensorAttention(problem, stream.cuda_stream);
  }
  RETURN_IF_ERROR(LaunchGeneralAttention(problem, args.cache_dtype, stream.cuda_stream));
  return LaunchJoinParts(problem, stream.cuda_stream);
}

}  // namespace arborist::kernels::cuda
