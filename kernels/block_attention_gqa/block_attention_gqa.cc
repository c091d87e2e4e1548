#include "kernels/block_attention_gqa/block_attention_gqa.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/block_attention_gqa/split_layout.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status SameShape(const char* name, int64_t rows, int64_t heads, int64_t columns,
                       const View3<const float>& want, const char* want_name) {
  if (rows == want.rows && heads == want.heads && columns == want.columns) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, " is [", rows, ", ", heads, ", ", columns,
                                                 "], expected the shape of ", want_name, ", [", want.rows,
                                                 ", ", want.heads, ", ", want.columns, "]"));
}

absl::Status ValidateRowShapes(const BlockAttentionGqaArgs& args) {
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
  const View3<const float>& value = args.block_value;
  RETURN_IF_ERROR(SameShape("block_value", value.rows, value.heads, value.columns, key, "block_key"));
  return SameShape("out", args.out.rows, args.out.heads, args.out.columns, args.query, "query");
}

absl::Status ValidateContext(const BlockAttentionGqaArgs& args) {
  if (args.max_context < 0) {
    return FieldError("max_context", args.max_context, ">= 0");
  }
  if (args.plane_rows < 0) {
    return FieldError("plane_rows", args.plane_rows, ">= 0");
  }
  if (args.plane_rows > 0 && (args.context_key == nullptr || args.context_value == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("context_key or context_value is null, expected ", args.plane_rows, " rows"));
  }
  if (!std::isfinite(args.scale)) {
    return absl::InvalidArgumentError(absl::StrCat("scale=", args.scale, ", expected a finite value"));
  }
  return absl::OkStatus();
}

absl::Status OnePer(const char* field, int64_t size, int64_t want, const char* what) {
  return size == want ? absl::OkStatus() : FieldError(field, size, absl::StrCat(what, "=", want));
}

absl::Status ValidateStream(const BlockAttentionGqaArgs& args, int64_t s) {
  const int64_t rows = args.context_rows[s], first = args.context_first[s];
  if (rows < 0 || rows > args.max_context) {
    return FieldError(absl::StrCat("context_rows[", s, "]"), rows,
                      absl::StrCat("0..max_context=", args.max_context));
  }
  if (first < 0 || first + rows > args.plane_rows) {
    return FieldError(absl::StrCat("context_first[", s, "]"), first,
                      absl::StrCat("room for ", rows, " rows in plane_rows=", args.plane_rows));
  }
  return absl::OkStatus();
}

absl::Status ValidateRange(const BlockAttentionGqaArgs& args, int64_t row) {
  const int64_t i = row % args.block, context = args.context_rows[row / args.block];
  if (args.context_begin[row] < 0 || args.context_begin[row] > context) {
    return FieldError(absl::StrCat("context_begin[", row, "]"), args.context_begin[row],
                      absl::StrCat("0..context_rows=", context));
  }
  if (args.block_begin[row] < 0 || args.block_begin[row] > i) {
    return FieldError(absl::StrCat("block_begin[", row, "]"), args.block_begin[row], absl::StrCat("0..", i));
  }
  if (args.block_end[row] <= i || args.block_end[row] > args.block) {
    return FieldError(absl::StrCat("block_end[", row, "]"), args.block_end[row],
                      absl::StrCat(i + 1, "..", args.block));
  }
  return absl::OkStatus();
}

}  // namespace

size_t BlockAttentionGqaScratchBytes(const BlockAttentionGqaArgs& args) {
  return gqa::SplitLayoutOf(args).bytes();
}

absl::Status ValidateBlockAttentionGqaShapes(const BlockAttentionGqaArgs& args) {
  RETURN_IF_ERROR(ValidateRowShapes(args));
  RETURN_IF_ERROR(ValidateContext(args));
  if (args.block < 1 || args.block > kMaxGqaBlock || args.query.rows % args.block != 0) {
    return FieldError("block", args.block,
                      absl::StrCat("1..", kMaxGqaBlock, ", a divisor of query.rows=", args.query.rows));
  }
  const int64_t streams = args.query.rows / args.block;
  RETURN_IF_ERROR(OnePer("context_first.size", args.context_first.size, streams, "streams"));
  RETURN_IF_ERROR(OnePer("context_rows.size", args.context_rows.size, streams, "streams"));
  RETURN_IF_ERROR(OnePer("context_begin.size", args.context_begin.size, args.query.rows, "query.rows"));
  RETURN_IF_ERROR(OnePer("block_begin.size", args.block_begin.size, args.query.rows, "query.rows"));
  return OnePer("block_end.size", args.block_end.size, args.query.rows, "query.rows");
}

absl::Status ValidateBlockAttentionGqa(const BlockAttentionGqaArgs& args) {
  RETURN_IF_ERROR(ValidateBlockAttentionGqaShapes(args));
  for (int64_t s = 0; s < args.context_rows.size; ++s) {
    RETURN_IF_ERROR(ValidateStream(args, s));
  }
  for (int64_t row = 0; row < args.query.rows; ++row) {
    RETURN_IF_ERROR(ValidateRange(args, row));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
