// The C functions of the verify step: rows, attention, sampling.
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/capi/arborist_kernels.h"
#include "kernels/capi/convert.h"
#include "kernels/capi/report.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "kernels/tree_rows/tree_rows.h"

namespace arborist::kernels::capi {
namespace {

static_assert(ARBORIST_MAX_TAIL_KEYS == kMaxTailKeys && ARBORIST_MAX_DEPTH == kTreeRowsMaxDepth);
// The structs in device memory are ours, field for field.
static_assert(sizeof(arborist_sampling_params) == sizeof(SamplingParams));
static_assert(offsetof(arborist_sampling_params, temperature) == offsetof(SamplingParams, temperature));
static_assert(offsetof(arborist_sampling_params, top_k) == offsetof(SamplingParams, top_k));
static_assert(offsetof(arborist_sampling_params, top_p) == offsetof(SamplingParams, top_p));
static_assert(offsetof(arborist_sampling_params, min_p) == offsetof(SamplingParams, min_p));
static_assert(offsetof(arborist_sampling_params, seed) == offsetof(SamplingParams, seed));
static_assert(offsetof(arborist_sampling_params, sample_index) == offsetof(SamplingParams, sample_index));

absl::Status CheckPageRows(int32_t page_rows) {
  if (page_rows == kPageRows || page_rows == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("page_rows=", page_rows, ", expected ", kPageRows, " or 1"));
}

absl::Status RunTreeRows(const arborist_tree_rows_args& args, void* stream) {
  RETURN_IF_ERROR(CheckPageRows(args.page_rows));
  RETURN_IF_ERROR(CheckSizes({{"trees", args.trees, 0, kMaxRows},
                              {"rows", args.rows, 0, kMaxRows},
                              {"sequences", args.sequences, 0, kMaxRows},
                              {"pages", args.pages, 0, kMaxSlots},
                              {"page_table_stride", args.page_table_stride, args.pages, kMaxSlots}}));
  RETURN_IF_ERROR(CheckPointers({{"tree_begin", args.tree_begin, args.trees + 1, 4},
                                 {"nodes", args.nodes, 0, 4},
                                 {"parent", args.parent, args.rows, 4},
                                 {"root_position", args.root_position, args.trees, 4},
                                 {"table_row", args.table_row, 0, 4},
                                 {"page_table", args.page_table, args.sequences * args.pages, 4},
                                 {"write_slot", args.write_slot, args.rows, 4},
                                 {"sequence", args.sequence, args.rows, 4},
                                 {"position", args.position, args.rows, 4},
                                 {"prefix_blocks", args.prefix_blocks, args.rows, 4},
                                 {"tail_slot", args.tail_slot, args.rows, 4},
                                 {"tail_count", args.tail_count, args.rows, 4}}));
  RETURN_IF_ERROR(CheckDevice());
  return cuda::TreeRows({.tree_begin = {args.tree_begin, args.trees + 1},
                         .nodes = {args.nodes, args.nodes == nullptr ? 0 : args.trees},
                         .parent = {args.parent, args.rows},
                         .root_position = {args.root_position, args.trees},
                         .table_row = {args.table_row, args.table_row == nullptr ? 0 : args.trees},
                         .page_table = {args.page_table, args.sequences, args.pages, args.page_table_stride},
                         .page_rows = args.page_rows,
                         .write_slot = {args.write_slot, args.rows},
                         .sequence = {args.sequence, args.rows},
                         .position = {args.position, args.rows},
                         .prefix_blocks = {args.prefix_blocks, args.rows},
                         .tail_slot = {args.tail_slot, args.rows, kMaxTailKeys, kMaxTailKeys},
                         .tail_count = {args.tail_count, args.rows}},
                        OnStream(stream));
}

absl::Status CheckAttentionSizes(const arborist_tree_attention_mla_args& args) {
  RETURN_IF_ERROR(CheckSizes({{"rows", args.rows, 0, kMaxRows},
                              {"heads", args.heads, 1, 1 << 10},
                              {"latent", args.latent, 1, 1 << 14},
                              {"rope", args.rope, 0, 1 << 14},
                              {"slots", args.slots, 0, kMaxSlots},
                              {"sequences", args.sequences, 0, kMaxRows},
                              {"pages", args.pages, 0, kMaxSlots},
                              {"page_table_stride", args.page_table_stride, args.pages, kMaxSlots}}));
  RETURN_IF_ERROR(CheckPageRows(args.page_rows));
  return CheckDType("cache_dtype", args.cache_dtype);
}

// Whole blocks that a row's prefix can have.
int64_t MostBlocks(const arborist_tree_attention_mla_args& args) {
  return args.pages * args.page_rows / kPageRows;
}

size_t AttentionScratchBytes(const arborist_tree_attention_mla_args& args) {
  return TreeAttentionMlaCudaScratchBytes(args.rows, args.heads, args.latent, args.rope, MostBlocks(args));
}

absl::Status RunTreeAttentionMla(const arborist_tree_attention_mla_args& args, void* stream) {
  RETURN_IF_ERROR(CheckAttentionSizes(args));
  const int64_t width = args.latent + args.rope, queries = args.rows * args.heads;
  RETURN_IF_ERROR(CheckPointers({{"query", args.query, queries * width, 16},
                                 {"cache", args.cache, args.slots * width, 16},
                                 {"page_table", args.page_table, args.sequences * args.pages, 4},
                                 {"sequence", args.sequence, args.rows, 4},
                                 {"prefix_blocks", args.prefix_blocks, args.rows, 4},
                                 {"tail_slot", args.tail_slot, args.rows, 4},
                                 {"tail_count", args.tail_count, args.rows, 4},
                                 {"out", args.out, queries * args.latent, 16},
                                 {"scratch", args.scratch, args.rows, 256}}));
  RETURN_IF_ERROR(CheckScratch(args.scratch_bytes, AttentionScratchBytes(args)));
  RETURN_IF_ERROR(CheckDevice());
  return cuda::TreeAttentionMla(
      {.query = {args.query, args.rows, args.heads, width},
       .cache = args.cache,
       .cache_dtype = ToDType(args.cache_dtype),
       .slots = args.slots,
       .latent = args.latent,
       .rope = args.rope,
       .scale = args.scale,
       .sequence = {args.sequence, args.rows},
       .page_table = {args.page_table, args.sequences, args.pages, args.page_table_stride},
       .page_rows = args.page_rows,
       .prefix_blocks = {args.prefix_blocks, args.rows},
       .tail_slot = {args.tail_slot, args.rows, kMaxTailKeys, kMaxTailKeys},
       .tail_count = {args.tail_count, args.rows},
       .out = {args.out, args.rows, args.heads, args.latent},
       .scratch = {static_cast<std::byte*>(args.scratch), static_cast<int64_t>(args.scratch_bytes)}},
      OnStream(stream));
}

absl::Status CheckSampleSizes(const arborist_sample_target_args& args) {
  return CheckSizes({{"rows", args.rows, 0, kMaxRows},
                     {"vocabulary", args.vocabulary, 1, kMaxVocabulary},
                     {"logits_stride", args.logits_stride, args.vocabulary, INT64_MAX},
                     {"params_count", args.params_count, args.rows > 0 ? 1 : 0, kMaxRows}});
}

size_t SampleScratchBytes(const arborist_sample_target_args& args) {
  return SampleTargetCudaScratchBytes(args.rows, args.vocabulary);
}

absl::Status RunSampleTarget(const arborist_sample_target_args& args, void* stream) {
  RETURN_IF_ERROR(CheckSampleSizes(args));
  RETURN_IF_ERROR(CheckPointers({{"logits", args.logits, args.rows * args.vocabulary, 4},
                                 {"position", args.position, args.rows, 4},
                                 {"params_index", args.params_index, args.rows, 4},
                                 {"params", args.params, args.params_count, 8},
                                 {"chosen", args.chosen, args.rows, 4},
                                 {"log_prob", args.log_prob, 0, 4},
                                 {"error", args.error, args.rows, 4},
                                 {"scratch", args.scratch, args.rows, 64}}));
  RETURN_IF_ERROR(CheckScratch(args.scratch_bytes, SampleScratchBytes(args)));
  RETURN_IF_ERROR(CheckDevice());
  const SampleTargetArgs own = {
      .logits = {args.logits, args.rows, args.vocabulary, args.logits_stride},
      .position = {args.position, args.rows},
      .params_index = {args.params_index, args.rows},
      .params = {reinterpret_cast<const SamplingParams*>(args.params), args.params_count},
      .chosen = {reinterpret_cast<TokenId*>(args.chosen), args.rows},
      .log_prob = {args.log_prob, args.log_prob == nullptr ? 0 : args.rows},
      .scratch = {static_cast<std::byte*>(args.scratch), static_cast<int64_t>(args.scratch_bytes)},
      .error = {args.error, args.rows}};
  return args.rows == 0 ? absl::OkStatus() : cuda::SampleTarget(own, OnStream(stream));
}

absl::Status RunCheckSamplingParams(const arborist_sampling_params& params) {
  return ValidateSamplingParams({.temperature = params.temperature,
                                 .top_k = params.top_k,
                                 .top_p = params.top_p,
                                 .min_p = params.min_p,
                                 .seed = params.seed,
                                 .sample_index = params.sample_index});
}

}  // namespace
}  // namespace arborist::kernels::capi

using namespace arborist::kernels::capi;  // NOLINT: the C functions below are this namespace's face

int arborist_tree_rows(const arborist_tree_rows_args* args, void* stream) {
  return ReportCall("arborist_tree_rows", args, [&] { return RunTreeRows(*args, stream); });
}

int arborist_tree_attention_mla_scratch_bytes(const arborist_tree_attention_mla_args* args, size_t* bytes) {
  return ReportBytes("arborist_tree_attention_mla_scratch_bytes", args, bytes, CheckAttentionSizes,
                     AttentionScratchBytes);
}

int arborist_tree_attention_mla(const arborist_tree_attention_mla_args* args, void* stream) {
  return ReportCall("arborist_tree_attention_mla", args, [&] { return RunTreeAttentionMla(*args, stream); });
}

int arborist_check_sampling_params(const arborist_sampling_params* params) {
  return ReportCall("arborist_check_sampling_params", params,
                    [&] { return RunCheckSamplingParams(*params); });
}

int arborist_sample_target_scratch_bytes(const arborist_sample_target_args* args, size_t* bytes) {
  return ReportBytes("arborist_sample_target_scratch_bytes", args, bytes, CheckSampleSizes,
                     SampleScratchBytes);
}

int arborist_sample_target(const arborist_sample_target_args* args, void* stream) {
  return ReportCall("arborist_sample_target", args, [&] { return RunSampleTarget(*args, stream); });
}
