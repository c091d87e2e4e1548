#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::kernels::reference {
namespace {

// One key row, widened exactly.
std::vector<float> Key(const TreeAttentionMlaArgs& args, int64_t slot) {
  const WeightView cache{args.cache, args.cache_dtype, args.slots, args.latent + args.rope};
  std::vector<float> key;
  for (int64_t column = 0; column < cache.columns; ++column) {
    key.push_back(WeightElement(cache, slot, column));
  }
  return key;
}

// The row's keys in position order.
std::vector<std::vector<float>> Keys(const TreeAttentionMlaArgs& args, int64_t row) {
  std::vector<std::vector<float>> keys;
  for (int64_t position = 0; position < int64_t{args.prefix_blocks[row]} * kPageRows; ++position) {
    keys.push_back(Key(args, args.PrefixSlot(args.sequence[row], position)));
  }
  for (int32_t key = 0; key < args.tail_count[row]; ++key) {
    keys.push_back(Key(args, args.tail_slot.row(row)[key]));
  }
  return keys;
}

void Attend(const TreeAttentionMlaArgs& args, const std::vector<std::vector<float>>& keys, const float* query,
            float* out) {
  std::vector<double> score;
  for (const std::vector<float>& key : keys) {
    double dot = 0;
    for (int64_t c = 0; c < args.latent + args.rope; ++c) {
      dot += static_cast<double>(query[c]) * static_cast<double>(key[c]);
    }
    score.push_back(dot * static_cast<double>(args.scale));
  }
  const double max = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double& value : score) {
    value = std::exp(value - max);
    sum += value;
  }
  std::vector<double> value(static_cast<size_t>(args.latent));
  for (size_t key = 0; key < keys.size(); ++key) {
    for (int64_t c = 0; c < args.latent; ++c) {
      value[c] += score[key] * static_cast<double>(keys[key][c]);
    }
  }
  for (int64_t c = 0; c < args.latent; ++c) {
    out[c] = static_cast<float>(value[c] / sum);
  }
}

}  // namespace

absl::Status TreeAttentionMla(const TreeAttentionMlaArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTreeAttentionMla(args));
  for (int64_t row = 0; row < args.query.rows; ++row) {
    const std::vector<std::vector<float>> keys = Keys(args, row);
    for (int64_t head = 0; head < args.query.heads; ++head) {
      if (keys.empty()) {
        std::fill_n(args.out.at(row, head), args.latent, 0.0f);
      } else {
        Attend(args, keys, args.query.at(row, head), args.out.at(row, head));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
