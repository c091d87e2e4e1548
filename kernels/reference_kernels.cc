#include "kernels/kernel_set.h"

namespace arborist::kernels {

const KernelSet& ReferenceKernels() {
  static constexpr KernelSet kSet = {
      .embedding_lookup = reference::EmbeddingLookup,
      .rms_norm = reference::RmsNorm,
      .add_rms_norm = reference::AddRmsNorm,
      .linear = reference::Linear,
      .linear_row_parallel = reference::LinearRowParallel,
      .linear_per_head = reference::LinearPerHead,
      .rope = reference::Rope,
      .silu_mul = reference::SiluMul,
      .mla_latents = reference::MlaLatents,
      .kv_append = reference::KvAppend,
      .kv_compact = reference::KvCompact,
      .tree_attention_mla = reference::TreeAttentionMla,
      .gqa_heads = reference::GqaHeads,
      .block_attention_gqa = reference::BlockAttentionGqa,
      .moe_route = reference::MoeRoute,
      .moe_experts = reference::MoeExperts,
      .feature_projection = reference::FeatureProjection,
      .top_k_log_prob = reference::TopKLogProb,
      .tree_build = reference::TreeBuild,
      .sample_target = reference::SampleTarget,
      .logit_controls = reference::LogitControls,
      .token_log_prob = reference::TokenLogProb,
      .tree_accept = reference::TreeAccept,
      .accepted_moves = reference::AcceptedMoves,
      .add_rows = reference::AddRows,
      .gather_rows = reference::GatherRows,
      .copy_rows = reference::CopyRows,
  };
  return kSet;
}

}  // namespace arborist::kernels
