#include "kernels/kernel_set.h"

namespace arborist::kernels {

namespace {

constexpr KernelSet kExactSet = {
    .embedding_lookup = cuda::EmbeddingLookup,
    .rms_norm = cuda::RmsNorm,
    .add_rms_norm = cuda::AddRmsNorm,
    .linear = cuda::Linear,
    .linear_row_parallel = cuda::LinearRowParallel,
    .linear_per_head = cuda::LinearPerHead,
    .rope = cuda::Rope,
    .silu_mul = cuda::SiluMul,
    .mla_latents = cuda::MlaLatents,
    .kv_append = cuda::KvAppend,
    .kv_compact = cuda::KvCompact,
    .tree_attention_mla = cuda::TreeAttentionMla,
    .gqa_heads = cuda::GqaHeads,
    .block_attention_gqa = cuda::BlockAttentionGqa,
    .moe_route = cuda::MoeRoute,
    .moe_experts = cuda::MoeExperts,
    .feature_projection = cuda::FeatureProjection,
    .top_k_log_prob = cuda::TopKLogProb,
    .tree_build = cuda::TreeBuild,
    .sample_target = cuda::SampleTarget,
    .logit_controls = cuda::LogitControls,
    .token_log_prob = cuda::TokenLogProb,
    .tree_accept = cuda::TreeAccept,
    .accepted_moves = cuda::AcceptedMoves,
    .add_rows = cuda::AddRows,
    .gather_rows = cuda::GatherRows,
    .copy_rows = cuda::CopyRows,
};

constexpr KernelSet WithFastProducts(KernelSet set) {
  set.linear = cuda::LinearFast;
  set.linear_row_parallel = cuda::LinearRowParallelFast;
  set.linear_per_head = cuda::LinearPerHeadFast;
  return set;
}
constexpr KernelSet kFastSet = WithFastProducts(kExactSet);

}  // namespace

const KernelSet& CudaKernels() { return kExactSet; }
const KernelSet& FastCudaKernels() { return kFastSet; }

}  // namespace arborist::kernels
