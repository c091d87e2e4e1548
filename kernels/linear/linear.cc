#include "kernels/linear/linear.h"

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels {
namespace {

absl::Status Wrong(absl::string_view field, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status ValidateShapes(const View2<const float>& x, const WeightView& weight, const View2<float>& out) {
  if (weight.dtype != DType::kF32 && weight.dtype != DType::kBF16 && weight.dtype != DType::kF16) {
    return Wrong("weight.dtype", static_cast<int>(weight.dtype), "F32, BF16 or F16");
  }
  if (x.rows < 0 || out.rows != x.rows) {
    return Wrong("out.rows", out.rows, absl::StrCat("x.rows=", x.rows));
  }
  if (weight.columns <= 0 || x.columns != weight.columns) {
    return Wrong("x.columns", x.columns, absl::StrCat("weight.columns=", weight.columns, " > 0"));
  }
  if (weight.rows <= 0 || out.columns != weight.rows) {
    return Wrong("out.columns", out.columns, absl::StrCat("weight.rows=", weight.rows, " > 0"));
  }
  if (x.row_stride < x.columns) {
    return Wrong("x.row_stride", x.row_stride, absl::StrCat("at least ", x.columns));
  }
  if (out.row_stride < out.columns) {
    return Wrong("out.row_stride", out.row_stride, absl::StrCat("at least ", out.columns));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateLinear(const LinearArgs& args) { return ValidateShapes(args.x, args.weight, args.out); }

absl::Status ValidateLinearRowParallel(const LinearRowParallelArgs& args) {
  const int count = args.segment_count;
  if (count != 1 && count != 2 && count != 4 && count != kRowParallelSegments) {
    return Wrong("segment_count", count, "1, 2, 4 or 8");
  }
  if (args.first_segment < 0 || args.first_segment % count != 0 ||
      args.first_segment + count > kRowParallelSegments) {
    return Wrong("first_segment", args.first_segment, absl::StrCat("a multiple of ", count, " below 8"));
  }
  const int64_t inputs = SegmentBegin(args.full_inputs, args.first_segment + count) -
                         SegmentBegin(args.full_inputs, args.first_segment);
  if (args.weight.columns != inputs) {
    return Wrong("weight.columns", args.weight.columns, absl::StrCat(inputs, ", the inputs of its segments"));
  }
  return ValidateShapes(args.x, args.weight, args.out);
}

void DotBlock(const DotBlockArgs& args) {
  ForActiveIsa(portable::DotBlock, avx2::DotBlock, avx512::DotBlock)(args);
}

void DotSegments(const DotSegmentsArgs& args) {
  ForActiveIsa(portable::DotSegments, avx2::DotSegments, avx512::DotSegments)(args);
}

}  // namespace arborist::kernels
