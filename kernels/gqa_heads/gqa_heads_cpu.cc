#include <cstring>

#include "common/base/status_macros.h"
#include "kernels/gqa_heads/gqa_heads.h"
#include "kernels/rms_norm/rms_norm.h"

namespace arborist::kernels::cpu {
namespace {

void CopyRow(const float* from, int64_t count, float* to) {
  if (from != to) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  }
}

// Rows of heads, in place: the norm, then the rotation.
absl::Status NormAndRotate(const GqaHeadsArgs& args, float* x, int64_t heads, View1<const float> weight,
                           View1<const int32_t> position, StreamView stream) {
  const int64_t dim = args.key.columns, vectors = position.size * heads;
  if (weight.size > 0) {
    RETURN_IF_ERROR(RmsNorm({.x = {x, vectors, dim, dim},
                             .weight = weight,
                             .out = {x, vectors, dim, dim},
                             .epsilon = args.epsilon},
                            stream));
  }
  return Rope({.x = x,
               .row_stride = heads * dim,
               .head_stride = dim,
               .heads = heads,
               .position = position,
               .cosine = args.cosine,
               .sine = args.sine,
               .pairing = args.pairing},
              stream);
}

}  // namespace

absl::Status GqaHeads(const GqaHeadsArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateGqaHeads(args));
  const int64_t kv_heads = args.key.heads, block_rows = args.key.rows, width = kv_heads * args.key.columns;
  const View1<const int32_t> block_position{args.position.data, block_rows};
  for (int64_t t = 0; t < block_rows; ++t) {
    CopyRow(args.key_in.row(t), width, args.key.at(t, 0));
    CopyRow(args.value_in.row(t), width, args.value.at(t, 0));
  }
  if (args.query.heads > 0) {
    for (int64_t t = 0; t < block_rows; ++t) {
      CopyRow(args.query_in.row(t), args.query.heads * args.query.columns, args.query.at(t, 0));
    }
    RETURN_IF_ERROR(
        NormAndRotate(args, args.query.data, args.query.heads, args.query_norm, block_position, stream));
  }
  RETURN_IF_ERROR(NormAndRotate(args, args.key.data, kv_heads, args.key_norm, block_position, stream));
  for (int64_t t = block_rows; t < args.key_in.rows; ++t) {
    const int64_t slot = args.slot[t - block_rows];
    if (slot < 0) {
      continue;
    }
    float* key = args.key_plane + slot * width;
    CopyRow(args.key_in.row(t), width, key);
    CopyRow(args.value_in.row(t), width, args.value_plane + slot * width);
    RETURN_IF_ERROR(NormAndRotate(args, key, kv_heads, args.key_norm, {&args.position[t], 1}, stream));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
