#include "kernels/embedding_lookup/embedding_lookup.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {

absl::Status ValidateEmbeddingLookupShapes(const EmbeddingLookupArgs& args) {
  if (args.table.dtype != DType::kF32 && args.table.dtype != DType::kBF16 &&
      args.table.dtype != DType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("table.dtype=", static_cast<int>(args.table.dtype), ", expected F32, BF16 or F16"));
  }
  if (args.out.rows != args.token.size || args.out.columns != args.table.columns ||
      args.out.row_stride < args.out.columns) {
    return absl::InvalidArgumentError(absl::StrCat("out=[", args.out.rows, ", ", args.out.columns,
                                                   "], expected [", args.token.size, ", ", args.table.columns,
                                                   "]"));
  }
  return absl::OkStatus();
}

absl::Status ValidateEmbeddingLookup(const EmbeddingLookupArgs& args) {
  RETURN_IF_ERROR(ValidateEmbeddingLookupShapes(args));
  for (int64_t t = 0; t < args.token.size; ++t) {
    const int32_t id = Raw(args.token[t]);
    if (id < 0 || id >= args.table.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("token[", t, "]=", id, ", expected an id in [0, ", args.table.rows, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
