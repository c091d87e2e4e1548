// The C functions of the draft step: candidates and trees.
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/capi/arborist_kernels.h"
#include "kernels/capi/convert.h"
#include "kernels/capi/report.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::capi {
namespace {

static_assert(ARBORIST_MAX_BUDGET == kTreeBuildMaxBudget && ARBORIST_MAX_DEPTH == kTreeBuildMaxDepth);
static_assert(ARBORIST_MAX_CANDIDATES == kTopKLogProbMaxK && ARBORIST_MAX_CANDIDATES == kTreeBuildMaxK);
// The structs in device memory are ours, field for field.
static_assert(sizeof(arborist_top_k_params) == sizeof(TopKParams));
static_assert(offsetof(arborist_top_k_params, temperature) == offsetof(TopKParams, temperature));
static_assert(offsetof(arborist_top_k_params, beta) == offsetof(TopKParams, beta));
static_assert(offsetof(arborist_top_k_params, seed) == offsetof(TopKParams, seed));
static_assert(offsetof(arborist_top_k_params, sample_index) == offsetof(TopKParams, sample_index));
static_assert(offsetof(arborist_top_k_params, first_position) == offsetof(TopKParams, first_position));
static_assert(offsetof(arborist_top_k_params, depths) == offsetof(TopKParams, depths));
static_assert(offsetof(arborist_top_k_params, k) == offsetof(TopKParams, k));
static_assert(sizeof(arborist_tree_build_params) == sizeof(TreeBuildParams));
static_assert(offsetof(arborist_tree_build_params, root) == offsetof(TreeBuildParams, root));
static_assert(offsetof(arborist_tree_build_params, depths) == offsetof(TreeBuildParams, depths));
static_assert(offsetof(arborist_tree_build_params, k) == offsetof(TreeBuildParams, k));
static_assert(offsetof(arborist_tree_build_params, budget) == offsetof(TreeBuildParams, budget));

absl::Status CheckTopKSizes(const arborist_top_k_log_prob_args& args) {
  RETURN_IF_ERROR(CheckSizes({{"streams", args.streams, 0, kMaxRows},
                              {"max_depths", args.max_depths, 0, ARBORIST_MAX_DEPTH},
                              {"streams * max_depths", args.streams * args.max_depths, 0, kMaxRows},
                              {"vocabulary", args.vocabulary, 1, kMaxVocabulary},
                              {"logits_stride", args.logits_stride, args.vocabulary, INT64_MAX},
                              {"max_k", args.max_k, 1, ARBORIST_MAX_CANDIDATES}}));
  return CheckDType("logits_dtype", args.logits_dtype);
}

size_t TopKScratchBytes(const arborist_top_k_log_prob_args& args) {
  return TopKLogProbCudaScratchBytes(args.streams * args.max_depths, args.vocabulary);
}

absl::Status RunTopKLogProb(const arborist_top_k_log_prob_args& args, void* stream) {
  RETURN_IF_ERROR(CheckTopKSizes(args));
  const int64_t rows = args.streams * args.max_depths, values = rows * args.max_k;
  RETURN_IF_ERROR(
      CheckPointers({{"logits", args.logits, rows * args.vocabulary, ByteSize(ToDType(args.logits_dtype))},
                     {"params", args.params, args.streams, 8},
                     {"token", args.token, values, 4},
                     {"log_prob", args.log_prob, values, 4},
                     {"scratch", args.scratch, rows, 64}}));
  RETURN_IF_ERROR(CheckScratch(args.scratch_bytes, TopKScratchBytes(args)));
  RETURN_IF_ERROR(CheckDevice());
  const TopKLogProbArgs own = {
      .logits = {args.logits, ToDType(args.logits_dtype), rows, args.vocabulary, args.logits_stride},
      .params = {reinterpret_cast<const TopKParams*>(args.params), args.streams},
      .token = {reinterpret_cast<TokenId*>(args.token), rows, args.max_k, args.max_k},
      .log_prob = {args.log_prob, rows, args.max_k, args.max_k},
      .scratch = {static_cast<std::byte*>(args.scratch), static_cast<int64_t>(args.scratch_bytes)}};
  return rows == 0 ? absl::OkStatus() : cuda::TopKLogProb(own, OnStream(stream));
}

// Checks what the host knows, and gives our form of the args.
absl::StatusOr<TreeBuildArgs> ToTreeBuild(const arborist_tree_build_args& args) {
  RETURN_IF_ERROR(CheckSizes({{"streams", args.streams, 0, kMaxRows},
                              {"max_depths", args.max_depths, 0, ARBORIST_MAX_DEPTH},
                              {"max_k", args.max_k, 1, ARBORIST_MAX_CANDIDATES},
                              {"max_budget", args.max_budget, 0, ARBORIST_MAX_BUDGET}}));
  const int64_t rows = args.streams * args.max_depths, nodes = args.max_budget + 1;
  RETURN_IF_ERROR(CheckPointers({{"params", args.params, args.streams, 4},
                                 {"token", args.token, rows * args.max_k, 4},
                                 {"log_prob", args.log_prob, rows * args.max_k, 4},
                                 {"out_token", args.out_token, args.streams * nodes, 4},
                                 {"out_parent", args.out_parent, args.streams * nodes, 4},
                                 {"out_score", args.out_score, args.streams * nodes, 4},
                                 {"out_nodes", args.out_nodes, args.streams, 4},
                                 {"error", args.error, args.streams, 4}}));
  return TreeBuildArgs{.params = {reinterpret_cast<const TreeBuildParams*>(args.params), args.streams},
                       .token = {reinterpret_cast<const TokenId*>(args.token), rows, args.max_k, args.max_k},
                       .log_prob = {args.log_prob, rows, args.max_k, args.max_k},
                       .out_token = {reinterpret_cast<TokenId*>(args.out_token), args.streams, nodes, nodes},
                       .out_parent = {args.out_parent, args.streams, nodes, nodes},
                       .out_score = {args.out_score, args.streams, nodes, nodes},
                       .out_nodes = {args.out_nodes, args.streams},
                       .error = {args.error, args.streams}};
}

absl::Status RunTreeBuild(const arborist_tree_build_args& args, void* stream) {
  ASSIGN_OR_RETURN(const TreeBuildArgs own, ToTreeBuild(args));
  RETURN_IF_ERROR(CheckDevice());
  return args.streams == 0 ? absl::OkStatus() : cuda::TreeBuild(own, OnStream(stream));
}

absl::Status RunTreeBuildHost(const arborist_tree_build_args& args) {
  ASSIGN_OR_RETURN(const TreeBuildArgs own, ToTreeBuild(args));
  return cpu::TreeBuild(own, {});
}

}  // namespace
}  // namespace arborist::kernels::capi

using namespace arborist::kernels::capi;  // NOLINT: the C functions below are this namespace's face

int arborist_top_k_log_prob_scratch_bytes(const arborist_top_k_log_prob_args* args, size_t* bytes) {
  return ReportBytes("arborist_top_k_log_prob_scratch_bytes", args, bytes, CheckTopKSizes, TopKScratchBytes);
}

int arborist_top_k_log_prob(const arborist_top_k_log_prob_args* args, void* stream) {
  return ReportCall("arborist_top_k_log_prob", args, [&] { return RunTopKLogProb(*args, stream); });
}

int arborist_tree_build(const arborist_tree_build_args* args, void* stream) {
  return ReportCall("arborist_tree_build", args, [&] { return RunTreeBuild(*args, stream); });
}

int arborist_tree_build_host(const arborist_tree_build_args* args) {
  return ReportCall("arborist_tree_build_host", args, [&] { return RunTreeBuildHost(*args); });
}
