#include "kernels/gqa_heads/gqa_heads.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {
namespace {

// block_attention_gqa's.
constexpr int64_t kMaxHeadDim = 256;

absl::Status Equal(const char* field, int64_t value, int64_t want) {
  return value == want ? absl::OkStatus()
                       : absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", want));
}

absl::Status ValidateInputs(const GqaHeadsArgs& args) {
  const int64_t dim = args.key.columns, rows = args.key_in.rows, block_rows = args.key.rows;
  RETURN_IF_ERROR(Equal("value_in.rows", args.value_in.rows, rows));
  RETURN_IF_ERROR(Equal("key_in.columns", args.key_in.columns, args.key.heads * dim));
  RETURN_IF_ERROR(Equal("value_in.columns", args.value_in.columns, args.key.heads * dim));
  RETURN_IF_ERROR(Equal("position.size", args.position.size, rows));
  RETURN_IF_ERROR(Equal("slot.size", args.slot.size, rows - block_rows));
  if (args.query.heads > 0) {
    RETURN_IF_ERROR(Equal("query.rows", args.query.rows, block_rows));
    RETURN_IF_ERROR(Equal("query.columns", args.query.columns, dim));
    RETURN_IF_ERROR(Equal("query_in.rows", args.query_in.rows, block_rows));
    RETURN_IF_ERROR(Equal("query_in.columns", args.query_in.columns, args.query.heads * dim));
  }
  RETURN_IF_ERROR(Equal("value.rows", args.value.rows, block_rows));
  RETURN_IF_ERROR(Equal("value.heads", args.value.heads, args.key.heads));
  return Equal("value.columns", args.value.columns, dim);
}

}  // namespace

absl::Status ValidateGqaHeadsShapes(const GqaHeadsArgs& args) {
  const int64_t dim = args.key.columns;
  if (dim < 2 || dim > kMaxHeadDim || dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("key.columns=", dim, ", expected an even head_dim of 2..", kMaxHeadDim));
  }
  if (args.key.heads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("key.heads=", args.key.heads, ", expected at least 1"));
  }
  RETURN_IF_ERROR(ValidateInputs(args));
  for (const View1<const float>& norm : {args.query_norm, args.key_norm}) {
    if (norm.size > 0) {
      RETURN_IF_ERROR(Equal("norm.size", norm.size, dim));
    }
  }
  RETURN_IF_ERROR(Equal("cosine.columns", args.cosine.columns, dim / 2));
  RETURN_IF_ERROR(Equal("sine.columns", args.sine.columns, dim / 2));
  RETURN_IF_ERROR(Equal("sine.rows", args.sine.rows, args.cosine.rows));
  if (!(args.epsilon > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("epsilon=", args.epsilon, ", expected > 0"));
  }
  if (args.slot.size > 0 && (args.key_plane == nullptr || args.value_plane == nullptr)) {
    return absl::InvalidArgumentError(
        "key_plane or value_plane is null, expected both where rows have slots");
  }
  return absl::OkStatus();
}

absl::Status ValidateGqaHeads(const GqaHeadsArgs& args) {
  RETURN_IF_ERROR(ValidateGqaHeadsShapes(args));
  for (int64_t t = 0; t < args.position.size; ++t) {
    if (args.position[t] < 0 || args.position[t] >= args.cosine.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("position[", t, "]=", args.position[t], ", expected 0..", args.cosine.rows - 1));
    }
  }
  for (int64_t t = 0; t < args.slot.size; ++t) {
    if (args.slot[t] >= args.plane_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot[", t, "]=", args.slot[t], ", expected below plane_rows=", args.plane_rows));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
