#include "verifier/testing/fake_model.h"

#include <bit>

#include "common/base/check.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kLatent = 3;
constexpr int64_t kRope = 2;

// The finaliser of splitmix64, folding one more word in.
uint64_t Mix(uint64_t state, uint64_t word) {
  uint64_t z = state + word * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// [0, 1), exact.
float Unit(uint64_t hash) { return static_cast<float>(hash >> 40) * 0x1p-24f; }

}  // namespace

FakeModel::FakeModel(const FakeModelOptions& options)
    : options_(options),
      state_(static_cast<size_t>(options.max_rows)),
      logits_(static_cast<size_t>(options.max_logits_rows * options.vocabulary)),
      taps_(static_cast<size_t>(options.max_rows * options.taps * options.hidden)) {
  config_.model_type = "fake";
  config_.vocab_size = options.vocabulary;
  config_.hidden_size = options.hidden;
  config_.layers = options.layers;
  config_.kv_lora_rank = kLatent;
  config_.qk_rope_head_dim = kRope;
}

uint64_t FakeModel::HashKeys(const StepBatchView& batch, const KvPlanes& planes, int layer, int row) const {
  const auto* cache = static_cast<const float*>(planes.latent(layer));
  const int64_t width = planes.latent_row();
  uint64_t hash = Mix(options_.seed, static_cast<uint64_t>(layer));
  const auto fold = [&](int64_t slot) {
    Check(slot >= 0 && slot < planes.slots(), "a key lies in the cache");
    for (int64_t i = 0; i < width; ++i) {
      hash = Mix(hash, std::bit_cast<uint32_t>(cache[slot * width + i]));
    }
  };
  const int32_t* table =
      batch.page_table + static_cast<int64_t>(batch.sequence[row]) * batch.pages_per_sequence;
  for (int64_t key = 0; key < int64_t{batch.prefix_blocks[row]} * kernels::kPageRows; ++key) {
    fold(int64_t{table[key / kernels::kPageRows]} * kernels::kPageRows + key % kernels::kPageRows);
  }
  const int32_t* tail = batch.tail_slot + static_cast<int64_t>(row) * kernels::kMaxTailKeys;
  for (int32_t key = 0; key < batch.tail_count[row]; ++key) {
    fold(tail[key]);
  }
  return hash;
}

absl::StatusOr<ForwardResult> FakeModel::Forward(const StepBatchView& batch, KvPlanes& planes) {
  const int64_t width = planes.latent_row();
  for (int row = 0; row < batch.rows; ++row) {
    state_[row] = Mix(Mix(options_.seed, static_cast<uint64_t>(Raw(batch.token[row]))),
                      static_cast<uint64_t>(batch.position[row]));
  }
  for (int layer = 0; layer < options_.layers; ++layer) {
    for (int row = 0; row < batch.rows; ++row) {
      float* key = static_cast<float*>(planes.latent(layer)) + batch.write_slot[row] * width;
      for (int64_t i = 0; i < width; ++i) {
        key[i] = Unit(Mix(state_[row], static_cast<uint64_t>(i)));
      }
    }
    for (int row = 0; row < batch.rows; ++row) {
      state_[row] = Mix(state_[row], HashKeys(batch, planes, layer, row));
    }
  }
  const int64_t tap_columns = int64_t{options_.taps} * options_.hidden;
  for (int row = 0; row < batch.rows; ++row) {
    for (int64_t i = 0; i < tap_columns; ++i) {
      taps_[row * tap_columns + i] = Unit(Mix(~state_[row], static_cast<uint64_t>(i))) - 0.5f;
    }
  }
  const int64_t vocabulary = options_.vocabulary;
  const auto logits_rows = batch.logits_rows;
  for (int64_t i = 0; i < logits_rows; ++i) {
    const uint64_t state = state_[batch.logits_row[i]];
    for (int64_t v = 0; v < vocabulary; ++v) {
      logits_[i * vocabulary + v] = 4 * Unit(Mix(state, static_cast<uint64_t>(v)));
    }
    logits_[i * vocabulary + static_cast<int64_t>(state % static_cast<uint64_t>(vocabulary))] +=
        options_.sharpness;
  }
  return ForwardResult{.logits = {logits_.data(), logits_rows, vocabulary, vocabulary},
                       .taps = {taps_.data(), batch.rows, tap_columns, tap_columns}};
}

}  // namespace arborist::verifier
