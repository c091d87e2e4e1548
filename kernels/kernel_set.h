#pragma once

#include "kernels/accepted_moves/accepted_moves.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"
#include "kernels/embedding_lookup/embedding_lookup.h"
#include "kernels/feature_projection/feature_projection.h"
#include "kernels/gqa_heads/gqa_heads.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/kv_compact/kv_compact.h"
#include "kernels/linear/linear.h"
#include "kernels/linear_per_head/linear_per_head.h"
#include "kernels/logit_controls/logit_controls.h"
#include "kernels/mla_latents/mla_latents.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/row_ops/row_ops.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/token_log_prob/token_log_prob.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/tree_accept/tree_accept.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels {

// The menu: a backend is a column of functions. CPU functions are done on return; CUDA functions are enqueued
// on the stream, and a returned error covers arguments and launch only. No pointer is ever null (a test
// asserts it).
struct KernelSet {
  template <typename Args>
  using Kernel = absl::Status (*)(const Args&, StreamView);

  Kernel<EmbeddingLookupArgs> embedding_lookup;
  Kernel<RmsNormArgs> rms_norm;
  Kernel<AddRmsNormArgs> add_rms_norm;
  Kernel<LinearArgs> linear;
  Kernel<LinearRowParallelArgs> linear_row_parallel;
  Kernel<LinearPerHeadArgs> linear_per_head;
  Kernel<RopeArgs> rope;
  Kernel<SiluMulArgs> silu_mul;
  Kernel<MlaLatentsArgs> mla_latents;
  Kernel<KvAppendArgs> kv_append;
  Kernel<KvCompactArgs> kv_compact;
  Kernel<TreeAttentionMlaArgs> tree_attention_mla;
  Kernel<GqaHeadsArgs> gqa_heads;
  Kernel<BlockAttentionGqaArgs> block_attention_gqa;
  Kernel<MoeRouteArgs> moe_route;
  Kernel<MoeExpertsArgs> moe_experts;
  Kernel<FeatureProjectionArgs> feature_projection;
  Kernel<TopKLogProbArgs> top_k_log_prob;
  Kernel<TreeBuildArgs> tree_build;
  Kernel<SampleTargetArgs> sample_target;
  Kernel<LogitControlsArgs> logit_controls;
  Kernel<TokenLogProbArgs> token_log_prob;
  Kernel<TreeAcceptArgs> tree_accept;
  Kernel<AcceptedMovesArgs> accepted_moves;
  Kernel<AddRowsArgs> add_rows;
  Kernel<GatherRowsArgs> gather_rows;
  Kernel<CopyRowsArgs> copy_rows;
};

const KernelSet& ReferenceKernels();
const KernelSet& CpuKernels();
// Built with CUDA only: callers take it from kernels/backend.h.
const KernelSet& CudaKernels();
const KernelSet& FastCudaKernels();

}  // namespace arborist::kernels
