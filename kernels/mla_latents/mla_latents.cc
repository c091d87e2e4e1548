#include "kernels/mla_latents/mla_latents.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {

RmsNormArgs QueryNormOf(const MlaLatentsArgs& args) {
  const View2<float>& q = args.query;
  return {.x = {q.data, q.rows, q.columns, q.row_stride},
          .weight = args.query_norm,
          .out = q,
          .epsilon = args.epsilon};
}

RmsNormArgs KeyNormOf(const MlaLatentsArgs& args) {
  const int64_t latent = args.key_norm.size;
  return {.x = {args.key.data, args.key.rows, latent, args.key.row_stride},
          .weight = args.key_norm,
          .out = {args.key.data, args.key.rows, latent, args.key.row_stride},
          .epsilon = args.epsilon};
}

RopeArgs KeyRotationOf(const MlaLatentsArgs& args) {
  return {.x = args.key.data + args.key_norm.size,
          .row_stride = args.key.row_stride,
          .head_stride = args.key.row_stride,
          .heads = 1,
          .position = args.position,
          .cosine = args.cosine,
          .sine = args.sine,
          .pairing = args.pairing};
}

KvAppendArgs AppendOf(const MlaLatentsArgs& args) {
  return {.rows = args.key.data,
          .source_stride_bytes = args.key.row_stride * static_cast<int64_t>(sizeof(float)),
          .slot = args.slot,
          .plane = args.plane,
          .slots = args.slots,
          .row_bytes = args.key.columns * static_cast<int64_t>(ByteSize(args.plane_dtype)),
          .narrow = args.plane_dtype == DType::kBF16};
}

absl::Status ValidateMlaLatents(const MlaLatentsArgs& args) {
  const auto equal = [](const char* field, int64_t value, int64_t want) {
    return value == want ? absl::OkStatus()
                         : absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", want));
  };
  if (args.plane_dtype != DType::kF32 && args.plane_dtype != DType::kBF16) {
    return absl::InvalidArgumentError(
        absl::StrCat("plane_dtype=", std::string(Name(args.plane_dtype)), ", expected F32 or BF16"));
  }
  RETURN_IF_ERROR(equal("position.size", args.position.size, args.key.rows));
  RETURN_IF_ERROR(equal("slot.size", args.slot.size, args.key.rows));
  RETURN_IF_ERROR(equal("key.columns", args.key.columns, args.key_norm.size + 2 * args.cosine.columns));
  RETURN_IF_ERROR(ValidateRmsNorm(KeyNormOf(args)));
  if (args.query.columns > 0) {
    RETURN_IF_ERROR(equal("query.rows", args.query.rows, args.key.rows));
    RETURN_IF_ERROR(ValidateRmsNorm(QueryNormOf(args)));
  }
  RETURN_IF_ERROR(ValidateRopeShapes(KeyRotationOf(args)));
  return ValidateKvAppendShapes(AppendOf(args));
}

}  // namespace arborist::kernels
