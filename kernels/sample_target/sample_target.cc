#include "kernels/sample_target/sample_target.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/sample_target/sampling_rule.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

}  // namespace

absl::Status ValidateSampleTargetShapes(const SampleTargetArgs& args) {
  const int64_t rows = args.logits.rows;
  if (args.logits.columns < 1 || args.logits.columns > kMaxVocabulary) {
    return FieldError("logits.columns", absl::StrCat(args.logits.columns),
                      absl::StrCat("a vocabulary of 1..", kMaxVocabulary));
  }
  if (args.logits.row_stride < args.logits.columns) {
    return FieldError("logits.row_stride", absl::StrCat(args.logits.row_stride),
                      absl::StrCat("at least logits.columns=", args.logits.columns));
  }
  const std::string one_a_row = absl::StrCat("logits.rows=", rows);
  if (args.position.size != rows) {
    return FieldError("position.size", absl::StrCat(args.position.size), one_a_row);
  }
  if (args.params_index.size != rows) {
    return FieldError("params_index.size", absl::StrCat(args.params_index.size), one_a_row);
  }
  if (args.chosen.size != rows) {
    return FieldError("chosen.size", absl::StrCat(args.chosen.size), one_a_row);
  }
  if (args.log_prob.size != 0 && args.log_prob.size != rows) {
    return FieldError("log_prob.size", absl::StrCat(args.log_prob.size), absl::StrCat("0 or ", one_a_row));
  }
  if (args.error.size != 0 && args.error.size != rows) {
    return FieldError("error.size", absl::StrCat(args.error.size), absl::StrCat("0 or ", one_a_row));
  }
  if (reinterpret_cast<uintptr_t>(args.scratch.data) % 64 != 0) {
    return absl::InvalidArgumentError("scratch.data is not aligned, expected 64 bytes");
  }
  return absl::OkStatus();
}

size_t SampleTargetScratchBytes(int64_t vocabulary, int threads) {
  return static_cast<size_t>(SamplingScratchBytes(vocabulary) * threads);
}

size_t SampleTargetCudaScratchBytes(int64_t rows, int64_t vocabulary) {
  const size_t chunks = static_cast<size_t>(CeilDiv(vocabulary, kSampleChunk)) * sizeof(SampleChunkResult);
  return static_cast<size_t>(rows) * (sizeof(SampleRowCut) + chunks);
}

absl::Status ValidateSamplingParams(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return FieldError("temperature", absl::StrCat(params.temperature), "a finite value >= 0");
  }
  if (params.top_k < 0) {
    return FieldError("top_k", absl::StrCat(params.top_k), ">= 0 (0 = off)");
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return FieldError("top_p", absl::StrCat(params.top_p), "a value in (0, 1]");
  }
  if (!(params.min_p >= 0 && params.min_p <= 1)) {
    return FieldError("min_p", absl::StrCat(params.min_p), "a value in [0, 1]");
  }
  return absl::OkStatus();
}

absl::Status ValidateSampleTarget(const SampleTargetArgs& args) {
  RETURN_IF_ERROR(ValidateSampleTargetShapes(args));
  const auto scratch = static_cast<int64_t>(SampleTargetScratchBytes(args.logits.columns, 1));
  if (args.scratch.size < scratch) {
    return FieldError("scratch.size", absl::StrCat(args.scratch.size), absl::StrCat("at least ", scratch));
  }
  for (int64_t i = 0; i < args.params.size; ++i) {
    RETURN_IF_ERROR(ValidateSamplingParams(args.params[i]));
  }
  for (int64_t row = 0; row < args.logits.rows; ++row) {
    if (args.params_index[row] < 0 || args.params_index[row] >= args.params.size) {
      return FieldError(absl::StrCat("params_index[", row, "]"), absl::StrCat(args.params_index[row]),
                        absl::StrCat("an index in [0, ", args.params.size, ")"));
    }
    if (args.position[row] < 0) {
      return FieldError(absl::StrCat("position[", row, "]"), absl::StrCat(args.position[row]), ">= 0");
    }
  }
  return absl::OkStatus();
}

void ReportBrokenRow(const SampleTargetArgs& args, int64_t row) {
  args.chosen[row] = TokenId{0};
  if (args.log_prob.size > 0) {
    args.log_prob[row] = 0;
  }
  if (args.error.size > 0) {
    args.error[row] = 1;
  }
}

absl::Status NonFiniteLogit(const SampleTargetArgs& args, int64_t row) {
  const float* logits = args.logits.row(row);
  for (int64_t v = 0; v < args.logits.columns; ++v) {
    if (!std::isfinite(logits[v])) {
      return absl::InternalError(
          absl::StrCat("logits[", row, "][", v, "]=", logits[v], ", expected a finite value"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
