#include "kernels/moe_experts/moe_experts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/moe_experts/moe_scratch.h"

namespace arborist::kernels {
namespace {

absl::Status Wrong(absl::string_view field, int64_t value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

int64_t SegmentWidth(int64_t full, int first, int count) {
  return SegmentBegin(full, first + count) - SegmentBegin(full, first);
}

bool IsWeight(const WeightView& matrix, DType dtype, int64_t rows, int64_t columns) {
  return matrix.dtype == dtype && matrix.rows == rows && matrix.columns == columns;
}

// A valid call builds no message: this runs in every step.
bool AreWeights(const ExpertWeights& weights, DType dtype, int64_t width, int64_t hidden) {
  return IsWeight(weights.gate, dtype, width, hidden) && IsWeight(weights.up, dtype, width, hidden) &&
         IsWeight(weights.down, dtype, hidden, width);
}

absl::Status WrongWeights(const std::string& name, const ExpertWeights& weights, DType dtype, int64_t width,
                          int64_t hidden) {
  const auto shape = [](const WeightView& matrix) {
    return absl::StrCat("[", matrix.rows, ", ", matrix.columns, "] of type ", static_cast<int>(matrix.dtype));
  };
  return absl::InvalidArgumentError(absl::StrCat(name, ".gate=", shape(weights.gate),
                                                 ", up=", shape(weights.up), ", down=", shape(weights.down),
                                                 ", expected [", width, ", ", hidden, "] twice and [", hidden,
                                                 ", ", width, "] of type ", static_cast<int>(dtype)));
}

}  // namespace

size_t MoeExpertsScratchBytes(int64_t tokens, int64_t hidden, int64_t experts, int top_k, int64_t width,
                              int64_t shared_width) {
  return MoeScratchLayout(tokens, hidden, experts, top_k, width, shared_width).bytes;
}

size_t MoeExpertsCudaScratchBytes(int64_t tokens, int top_k, int64_t width, int64_t shared_width) {
  // silu(gate) * up of every (row, expert) pair and of the shared expert, fp32 at most.
  return static_cast<size_t>(RoundUp(tokens * top_k * width * 4, 64) +
                             RoundUp(tokens * shared_width * 4, 64));
}

int64_t LiveRows(const MoeExpertsArgs& args) {
  return args.live_rows == nullptr ? args.x.rows : std::clamp<int64_t>(*args.live_rows, 0, args.x.rows);
}

absl::Status ValidateMoeExpertsShapes(const MoeExpertsArgs& args) {
  const int64_t rows = args.x.rows;
  const int64_t hidden = args.x.columns;
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
  if (args.weight_dtype != DType::kF32 && args.weight_dtype != DType::kBF16 &&
      args.weight_dtype != DType::kF16) {
    return Wrong("weight_dtype", static_cast<int>(args.weight_dtype), "F32, BF16 or F16");
  }
  const int64_t width = SegmentWidth(args.full_width, args.first_segment, count);
  if (args.width != width) {
    return Wrong("width", args.width, absl::StrCat(width, ", this rank's part of ", args.full_width));
  }
  const int64_t shared_width = SegmentWidth(args.full_shared_width, args.first_segment, count);
  if (args.shared != nullptr && !AreWeights(*args.shared, args.weight_dtype, shared_width, hidden)) {
    return WrongWeights("shared", *args.shared, args.weight_dtype, shared_width, hidden);
  }
  return absl::OkStatus();
}

absl::Status ValidateMoeExperts(const MoeExpertsArgs& args) {
  RETURN_IF_ERROR(ValidateMoeExpertsShapes(args));
  const int64_t hidden = args.x.columns;
  const int64_t experts = args.experts.size;
  for (int64_t e = 0; e < experts; ++e) {
    if (args.experts[e].gate.data != nullptr &&
        !AreWeights(args.experts[e], args.weight_dtype, args.width, hidden)) {
      return WrongWeights(absl::StrCat("experts[", e, "]"), args.experts[e], args.weight_dtype, args.width,
                          hidden);
    }
  }
  for (int64_t t = 0; t < LiveRows(args); ++t) {
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
  const int64_t shared_width = args.shared != nullptr ? args.shared->gate.rows : 0;
  const size_t needed = MoeExpertsScratchBytes(
      args.x.rows, hidden, experts, static_cast<int>(args.expert.columns), args.width, shared_width);
  if (args.scratch.size < static_cast<int64_t>(needed)) {
    return Wrong("scratch.size", args.scratch.size, absl::StrCat("at least ", needed));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
