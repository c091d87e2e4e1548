#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/block_attention_gqa/block_attention_gqa.h"

namespace arborist::kernels::reference {
namespace {

struct Key {
  const float* key;
  const float* value;
};

std::vector<Key> VisibleKeys(const BlockAttentionGqaArgs& args, int64_t i, int64_t kv_head) {
  std::vector<Key> keys;
  const int64_t s = i / args.block;
  for (int64_t j = args.context_begin[i]; j < args.context_rows[s]; ++j) {
    const int64_t offset =
        ((args.context_first[s] + j) * args.block_key.heads + kv_head) * args.block_key.columns;
    keys.push_back({args.context_key + offset, args.context_value + offset});
  }
  for (int64_t j = args.block_begin[i]; j < args.block_end[i]; ++j) {
    keys.push_back(
        {args.block_key.at(s * args.block + j, kv_head), args.block_value.at(s * args.block + j, kv_head)});
  }
  return keys;
}

void Attend(const std::vector<Key>& keys, const float* query, int64_t head_dim, double scale, float* out) {
  std::vector<double> score;
  for (const Key& key : keys) {
    double dot = 0;
    for (int64_t c = 0; c < head_dim; ++c) {
      dot += static_cast<double>(query[c]) * static_cast<double>(key.key[c]);
    }
    score.push_back(dot * scale);
  }
  const double max = *std::max_element(score.begin(), score.end());
  double sum = 0;
  for (double& value : score) {
    value = std::exp(value - max);
    sum += value;
  }
  for (int64_t c = 0; c < head_dim; ++c) {
    double value = 0;
    for (size_t j = 0; j < keys.size(); ++j) {
      value += score[j] * static_cast<double>(keys[j].value[c]);
    }
    out[c] = static_cast<float>(value / sum);
  }
}

}  // namespace

absl::Status BlockAttentionGqa(const BlockAttentionGqaArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateBlockAttentionGqa(args));
  const int64_t group = args.query.heads / args.block_key.heads;
  for (int64_t i = 0; i < args.query.rows; ++i) {
    for (int64_t head = 0; head < args.query.heads; ++head) {
      Attend(VisibleKeys(args, i, head / group), args.query.at(i, head), args.query.columns,
             static_cast<double>(args.scale), args.out.at(i, head));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
