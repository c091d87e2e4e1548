#include "kernels/block_attention_gqa/block_attention_gqa.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status ValidateShapes(const BlockAttentionGqaArgs& args) {
  const View3<const float>& key = args.block_key;
  if (key.heads < 1 || args.query.heads % key.heads != 0) {
    return FieldError("block_key.heads", key.heads,
                      absl::StrCat("a divisor of query.heads=", args.query.heads));
  }
  if (args.query.columns < 1 || args.query.columns > kMaxGqaHeadDim) {
    return FieldError("query.columns", args.query.columns, absl::StrCat("a head_dim of 1..", kMaxGqaHeadDim));
  }
  if (key.rows != args.query.rows || key.columns != args.query.columns) {
    return absl::InvalidArgumentError(absl::StrCat("block_key is [", key.rows, ", ", key.heads, ", ",
                                                   key.columns, "], expected [", args.query.rows, ", ",
                                                   key.heads, ", ", args.query.columns, "]"));
  }
  if (args.block_value.rows != key.rows || args.block_value.heads != key.heads ||
      args.block_value.columns != key.columns) {
    return absl::InvalidArgumentError(absl::StrCat("block_value is [", args.block_value.rows, ", ",
                                                   args.block_value.heads, ", ", args.block_value.columns,
                                                   "], expected the shape of block_key"));
  }
  if (args.out.rows != args.query.rows || args.out.heads != args.query.heads ||
      args.out.columns != args.query.columns) {
    return absl::InvalidArgumentError(absl::StrCat("out is [", args.out.rows, ", ", args.out.heads, ", ",
                                                   args.out.columns, "], expected the shape of query"));
  }
  if (args.context < 0) {
    return FieldError("context", args.context, ">= 0");
  }
  if (args.context > 0 && (args.context_key == nullptr || args.context_value == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("context_key or context_value is null, expected ", args.context, " rows"));
  }
  if (!std::isfinite(args.scale)) {
    return absl::InvalidArgumentError(absl::StrCat("scale=", args.scale, ", expected a finite value"));
  }
  return absl::OkStatus();
}

absl::Status ValidateRange(const BlockAttentionGqaArgs& args, int64_t i) {
  if (args.context_begin[i] < 0 || args.context_begin[i] > args.context) {
    return FieldError(absl::StrCat("context_begin[", i, "]"), args.context_begin[i],
                      absl::StrCat("0..context=", args.context));
  }
  if (args.block_begin[i] < 0 || args.block_begin[i] > i) {
    return FieldError(absl::StrCat("block_begin[", i, "]"), args.block_begin[i], absl::StrCat("0..", i));
  }
  if (args.block_end[i] <= i || args.block_end[i] > args.query.rows) {
    return FieldError(absl::StrCat("block_end[", i, "]"), args.block_end[i],
                      absl::StrCat(i + 1, "..", args.query.rows));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateBlockAttentionGqa(const BlockAttentionGqaArgs& args) {
  RETURN_IF_ERROR(ValidateShapes(args));
  const std::string one_a_row = absl::StrCat("query.rows=", args.query.rows);
  if (args.context_begin.size != args.query.rows) {
    return FieldError("context_begin.size", args.context_begin.size, one_a_row);
  }
  if (args.block_begin.size != args.query.rows) {
    return FieldError("block_begin.size", args.block_begin.size, one_a_row);
  }
  if (args.block_end.size != args.query.rows) {
    return FieldError("block_end.size", args.block_end.size, one_a_row);
  }
  for (int64_t i = 0; i < args.query.rows; ++i) {
    RETURN_IF_ERROR(ValidateRange(args, i));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
