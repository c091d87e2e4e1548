#include "kernels/kernel_set.h"

namespace arborist::kernels {

const KernelSet& CpuKernels() {
  static constexpr KernelSet kSet = {
      .embedding_lookup = cpu::EmbeddingLookup,
      .rms_norm = cpu::RmsNorm,
      .add_rms_norm = cpu::AddRmsNorm,
      .linear = cpu::Linear,
      .linear_row_parallel = cpu::LinearRowParallel,
      .linear_per_head = cpu::LinearPerHead,
      .rope = cpu::Rope,
      .silu_mul = cpu::SiluMul,
      .mla_latents = cpu::MlaLatents,
      .kv_append = cpu::KvAppend,
      .kv_compact = cpu::KvCompact,
      .tree_attention_mla = cpu::TreeAttentionMla,
      .gqa_heads = cpu::GqaHeads,
      .block_attention_gqa = cpu::BlockAttentionGqa,
      .moe_route = cpu::MoeRoute,
      .moe_experts = cpu::MoeExperts,
      .feature_projection = cpu::FeatureProjection,
      .top_k_log_prob = cpu::TopKLogProb,
      .tree_build = cpu::TreeBuild,
      .sample_target = cpu::SampleTarget,
      .logit_controls = cpu::LogitControls,
      .token_log_prob = cpu::TokenLogProb,
      .tree_accept = cpu::TreeAccept,
      .accepted_moves = cpu::AcceptedMoves,
      .add_rows = cpu::AddRows,
      .gather_rows = cpu::GatherRows,
      .copy_rows = cpu::CopyRows,
  };
  return kSet;
}

}  // namespace arborist::kernels
