#include "verifier/model/scratch.h"

#include <vector>

#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kAlignment = 256;

// Hands out one block piece by piece: buffers are named first, then the block is as large as all of them.
class Pieces {
 public:
  template <typename T>
  void Add(T** buffer, int64_t elements) {
    pieces_.push_back({reinterpret_cast<void**>(buffer), end_});
    end_ = RoundUp(end_ + elements * static_cast<int64_t>(sizeof(T)), kAlignment);
  }
  size_t bytes() const { return static_cast<size_t>(end_); }
  void PointInto(std::byte* block) const {
    for (const Piece& piece : pieces_) {
      *piece.buffer = block + piece.offset;
    }
  }

 private:
  struct Piece {
    void** buffer;
    int64_t offset;
  };
  std::vector<Piece> pieces_;
  int64_t end_ = 0;
};

int64_t MoeBytes(const ModelConfig& config, const ShardPlan& plan, int64_t rows, const Device& device) {
  const int top_k = static_cast<int>(config.experts_per_token);
  const int64_t width = plan.Inputs(config.moe_intermediate_size).count;
  const int64_t shared_width = plan.Inputs(config.shared_width()).count;
  if (device.kind() == DeviceKind::kCuda) {
    return static_cast<int64_t>(kernels::MoeExpertsCudaScratchBytes(rows, top_k, width, shared_width));
  }
  return static_cast<int64_t>(kernels::MoeExpertsScratchBytes(rows, config.hidden_size, config.routed_experts,
                                                              top_k, width, shared_width));
}

int64_t AttentionBytes(const ModelConfig& config, const ShardPlan& plan, const ScratchSizes& sizes,
                       const Device& device) {
  if (device.kind() == DeviceKind::kCuda) {
    return static_cast<int64_t>(kernels::TreeAttentionMlaCudaScratchBytes(
        sizes.max_rows, plan.heads().count, config.kv_lora_rank, config.qk_rope_head_dim, sizes.max_pages));
  }
  return static_cast<int64_t>(
      kernels::TreeAttentionMlaScratchBytes(config.kv_lora_rank, device.stream().threads->threads()));
}

}  // namespace

absl::StatusOr<Scratch> Scratch::Create(const ModelConfig& config, const ShardPlan& plan,
                                        const ScratchSizes& sizes, Device& device) {
  const int64_t rows = sizes.max_rows, logits_rows = sizes.max_logits_rows;
  const int64_t heads = plan.heads().count, hidden = config.hidden_size;
  const int64_t dense_width = plan.Inputs(config.intermediate_size).count;
  Scratch scratch;
  Pieces pieces;
  pieces.Add(&scratch.residual, rows * hidden);
  pieces.Add(&scratch.normed, rows * hidden);
  pieces.Add(&scratch.update, rows * hidden);
  pieces.Add(&scratch.compressed, rows * (config.q_lora_rank + config.latent_row()));
  pieces.Add(&scratch.q_parts, rows * heads * (config.qk_nope_head_dim + config.qk_rope_head_dim));
  pieces.Add(&scratch.query, rows * heads * config.latent_row());
  pieces.Add(&scratch.attended, rows * heads * config.kv_lora_rank);
  pieces.Add(&scratch.values, rows * heads * config.v_head_dim);
  pieces.Add(&scratch.gate, rows * dense_width);
  pieces.Add(&scratch.up, rows * dense_width);
  pieces.Add(&scratch.router, rows * config.routed_experts);
  pieces.Add(&scratch.route_weight, rows * config.experts_per_token);
  pieces.Add(&scratch.route, rows * config.experts_per_token);
  pieces.Add(&scratch.taps, rows * sizes.taps * hidden);
  pieces.Add(&scratch.selected, logits_rows * hidden);
  pieces.Add(&scratch.logits, logits_rows * config.vocab_size);
  if (plan.ranks() > 1) {
    pieces.Add(&scratch.logits_slice, logits_rows * plan.vocabulary_slice());
    pieces.Add(&scratch.logits_all, logits_rows * plan.ranks() * plan.vocabulary_slice());
  }
  scratch.moe.size = MoeBytes(config, plan, rows, device);
  pieces.Add(&scratch.moe.data, scratch.moe.size);
  scratch.attention.size = AttentionBytes(config, plan, sizes, device);
  pieces.Add(&scratch.attention.data, scratch.attention.size);
  ASSIGN_OR_RETURN(scratch.memory_, device.Allocate(pieces.bytes(), "activations"));
  pieces.PointInto(scratch.memory_.As<std::byte>());
  return scratch;
}

}  // namespace arborist::verifier
