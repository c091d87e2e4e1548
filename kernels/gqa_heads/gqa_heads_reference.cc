#include <cmath>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/gqa_heads/gqa_heads.h"

namespace arborist::kernels::reference {
namespace {

std::vector<double> Normed(const float* x, int64_t dim, View1<const float> weight, double epsilon) {
  std::vector<double> out(x, x + dim);
  if (weight.size == 0) {
    return out;
  }
  double squares = 0;
  for (const double value : out) {
    squares += value * value;
  }
  for (int64_t c = 0; c < dim; ++c) {
    out[c] =
        out[c] / std::sqrt(squares / static_cast<double>(dim) + epsilon) * static_cast<double>(weight[c]);
  }
  return out;
}

void Head(const GqaHeadsArgs& args, const float* x, View1<const float> weight, int32_t position, float* out) {
  const int64_t dim = args.key.columns, half = dim / 2;
  const std::vector<double> normed = Normed(x, dim, weight, static_cast<double>(args.epsilon));
  for (int64_t i = 0; i < half; ++i) {
    const bool interleaved = args.pairing == RopePairing::kInterleaved;
    const int64_t a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    const double c = static_cast<double>(args.cosine.row(position)[i]);
    const double s = static_cast<double>(args.sine.row(position)[i]);
    out[a] = static_cast<float>(normed[a] * c - normed[b] * s);
    out[b] = static_cast<float>(normed[b] * c + normed[a] * s);
  }
}

}  // namespace

absl::Status GqaHeads(const GqaHeadsArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateGqaHeads(args));
  const int64_t dim = args.key.columns, kv_heads = args.key.heads, block_rows = args.key.rows;
  for (int64_t t = 0; t < args.key_in.rows; ++t) {
    for (int64_t h = 0; t < block_rows && h < args.query.heads; ++h) {
      Head(args, args.query_in.row(t) + h * dim, args.query_norm, args.position[t], args.query.at(t, h));
    }
    if (t >= block_rows && args.slot[t - block_rows] < 0) {
      continue;
    }
    for (int64_t h = 0; h < kv_heads; ++h) {
      const int64_t place = t < block_rows ? 0 : (args.slot[t - block_rows] * kv_heads + h) * dim;
      float* key = t < block_rows ? args.key.at(t, h) : args.key_plane + place;
      float* value = t < block_rows ? args.value.at(t, h) : args.value_plane + place;
      Head(args, args.key_in.row(t) + h * dim, args.key_norm, args.position[t], key);
      for (int64_t c = 0; c < dim; ++c) {
        value[c] = args.value_in.row(t)[h * dim + c];
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
