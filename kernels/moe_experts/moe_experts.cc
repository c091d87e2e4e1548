#include "kernels/moe_experts/moe_experts.h"

#include "absl/strings/str_cat.h"
#include "kernels/moe_experts/moe_scratch.h"

namespace arborist::kernels {
namespace {

absl::Status Wrong(absl::string_view field, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

int64_t SegmentWidth(int64_t full, int first, int count) {
  return SegmentBegin(full, first + count) - SegmentBegin(full, first);
}

bool IsWeight(const WeightView& matrix, int64_t rows, int64_t columns) {
  return matrix.rows == rows && matrix.columns == columns &&
         (matrix.dtype == DType::kF32 || matrix.dtype == DType::kBF16 || matrix.dtype == DType::kF16);
}

// A valid call builds no message: this runs in every step.
bool AreWeights(const ExpertWeights& weights, int64_t width, int64_t hidden) {
  return IsWeight(weights.gate, width, hidden) && IsWeight(weights.up, width, hidden) &&
         IsWeight(weights.down, hidden, width);
}

absl::Status WrongWeights(const std::string& name, const ExpertWeights& weights, int64_t width,
                          int64_t hidden) {
  const auto shape = [](const WeightView& matrix) {
    return absl::StrCat("[", matrix.rows, ", ", matrix.columns, "] of type ", static_cast<int>(matrix.dtype));
  };
  return absl::InvalidArgumentError(absl::StrCat(
      name, ".gate=", shape(weights.gate), ", up=", shape(weights.up), ", down=", shape(weights.down),
      ", expected [", width, ", ", hidden, "] twice and [", hidden, ", ", width, "], F32, BF16 or F16"));
}

}  // namespace

size_t MoeExpertsScratchBytes(int64_t tokens, int64_t hidden, int64_t experts, int top_k, int64_t width,
                              int64_t shared_width) {
  return MoeScratchLayout(tokens, hidden, experts, top_k, width, shared_width).bytes;
}

absl::Status ValidateMoeExperts(const MoeExpertsArgs& args) {
  const int64_t rows = args.x.rows;
  const int64_t hidden = args.x.columns;
  const auto experts = static_cast<int64_t>(args.experts.size());
  const int count = args.segment_count;
  if (count != 1 && count != 2 && count != 4 && count != kRowParallelSegments) {
    return Wrong("segment_count", count, "1, 2, 4 or 8");
  }
  if (args.first_segment < 0 || args.first_segment % count != 0 ||
      args.first_segment + count > kRowParallelSegments) {
    return Wrong("first_segment", args.first_segment, absl::StrCat("a multiple of ", count, " below 8"));
  }
  if (args.out.rows != rows || args.out.columns != hidden) {
    return Wrong("out.rows", args.out.rows, absl::StrCat("[", rows, ", ", hidden, "] like x"));
  }
  if (args.expert.rows != rows || args.weight.rows != rows || args.weight.columns != args.expert.columns) {
    return Wrong("expert.rows", args.expert.rows, absl::StrCat(rows, " rows, and weight of the same shape"));
  }
  const int64_t width = SegmentWidth(args.full_width, args.first_segment, count);
  const int64_t shared_width =
      args.shared != nullptr ? SegmentWidth(args.full_shared_width, args.first_segment, count) : 0;
  // An expert that this call does not route to may be absent.
  for (int64_t e = 0; e < experts; ++e) {
    if (args.experts[e].gate.data != nullptr && !AreWeights(args.experts[e], width, hidden)) {
      return WrongWeights(absl::StrCat("experts[", e, "]"), args.experts[e], width, hidden);
    }
  }
  if (args.shared != nullptr && !AreWeights(*args.shared, shared_width, hidden)) {
    return WrongWeights("shared", *args.shared, shared_width, hidden);
  }
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < args.expert.columns; ++i) {
      const int32_t e = args.expert.row(t)[i];
      if (e < 0 || e >= experts || (i > 0 && e <= args.expert.row(t)[i - 1])) {
        return absl::InvalidArgumentError(
            absl::StrCat("expert[", t, ", ", i, "]=", e, ", expected ascending ids in [0, ", experts, ")"));
      }
      if (args.experts[e].gate.data == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("expert[", t, ", ", i, "]=", e, ", expected an expert with weights"));
      }
    }
  }
  const size_t needed = MoeExpertsScratchBytes(rows, hidden, experts, static_cast<int>(args.expert.columns),
                                               width, shared_width);
  if (args.scratch.size < static_cast<int64_t>(needed)) {
    return Wrong("scratch.size", args.scratch.size, absl::StrCat("at least ", needed));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
