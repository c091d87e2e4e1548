#include "verifier/model/scratch.h"

#include <algorithm>
#include <memory>

#include "kernels/moe_experts/moe_experts.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

constexpr size_t kAlignment = 64;

View1<std::byte> Align(std::vector<std::byte>& storage, size_t bytes) {
  storage.resize(bytes + kAlignment);
  void* aligned = storage.data();
  size_t space = storage.size();
  std::align(kAlignment, bytes, aligned, space);
  return {static_cast<std::byte*>(aligned), static_cast<int64_t>(bytes)};
}

}  // namespace

Scratch::Scratch(const ModelConfig& config, const ShardPlan& plan, const ScratchSizes& sizes) {
  const int64_t max_rows = sizes.max_rows, max_logits_rows = sizes.max_logits_rows;
  const auto allocate = [](std::vector<float>& buffer, int64_t rows, int64_t columns) {
    buffer.resize(static_cast<size_t>(rows * columns));
  };
  const int64_t heads = plan.heads().count, hidden = config.hidden_size;
  allocate(residual, max_rows, hidden);
  allocate(normed, max_rows, hidden);
  allocate(update, max_rows, hidden);
  allocate(q_latent, max_rows, config.q_lora_rank);
  allocate(q_nope, max_rows, heads * config.qk_nope_head_dim);
  allocate(query, max_rows, heads * config.latent_row());
  allocate(kv, max_rows, config.latent_row());
  allocate(attended, max_rows, heads * config.kv_lora_rank);
  allocate(values, max_rows, heads * config.v_head_dim);
  const int64_t dense_width = plan.Inputs(config.intermediate_size).count;
  allocate(gate, max_rows, dense_width);
  allocate(up, max_rows, dense_width);
  allocate(router, max_rows, config.routed_experts);
  allocate(route_weight, max_rows, config.experts_per_token);
  route.resize(static_cast<size_t>(max_rows * config.experts_per_token));
  allocate(taps, max_rows, sizes.taps * hidden);
  allocate(selected, max_logits_rows, hidden);
  allocate(logits, max_logits_rows, config.vocab_size);
  if (plan.ranks() > 1) {
    allocate(logits_slice, max_logits_rows, plan.vocabulary_slice());
    allocate(logits_all, max_logits_rows * plan.ranks(), plan.vocabulary_slice());
  }
  moe = Align(moe_storage_, kernels::MoeExpertsScratchBytes(max_rows, hidden, config.routed_experts,
                                                            static_cast<int>(config.experts_per_token),
                                                            plan.Inputs(config.moe_intermediate_size).count,
                                                            plan.Inputs(config.shared_width()).count));
  attention =
      Align(attention_storage_, kernels::TreeAttentionMlaScratchBytes(config.kv_lora_rank, sizes.threads));
}

size_t Scratch::total_bytes() const {
  size_t total = moe_storage_.size() + attention_storage_.size() + route.size() * sizeof(int32_t);
  for (const std::vector<float>* buffer :
       {&residual, &normed, &update, &q_latent, &q_nope, &query, &kv, &attended, &values, &gate, &up, &router,
        &route_weight, &taps, &selected, &logits, &logits_slice, &logits_all}) {
    total += buffer->size() * sizeof(float);
  }
  return total;
}

}  // namespace arborist::verifier
