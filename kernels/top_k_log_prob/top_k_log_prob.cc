#include "kernels/top_k_log_prob/top_k_log_prob.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/top_k_log_prob/candidate_rule.h"
#include "kernels/top_k_log_prob/top_k_log_prob_cuda.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

template <typename View>
absl::Status CheckOutput(const std::string& field, const View& view, int64_t rows) {
  if (view.rows == rows && view.columns >= 1 && view.row_stride >= view.columns) {
    return absl::OkStatus();
  }
  return FieldError(field, absl::StrCat("[", view.rows, ", ", view.columns, "]"),
                    absl::StrCat("[", rows, ", k] with a stride of at least k"));
}

absl::Status ValidateParams(const TopKLogProbArgs& args, int64_t stream) {
  const TopKParams& params = args.params[stream];
  const auto name = [&](const char* field) { return absl::StrCat("params[", stream, "].", field); };
  const int64_t max_k =
      std::min<int64_t>({kTopKLogProbMaxK, args.logits.columns, args.token.columns, args.log_prob.columns});
  if (params.k < 0 || params.k > max_k) {
    return FieldError(name("k"), absl::StrCat(params.k), absl::StrCat("0..", max_k));
  }
  const int64_t max_depths = args.logits.rows / args.params.size;
  if (params.depths < 0 || params.depths > max_depths) {
    return FieldError(name("depths"), absl::StrCat(params.depths), absl::StrCat("0..", max_depths));
  }
  if (!(params.beta > 0) || !std::isfinite(params.beta)) {
    return FieldError(name("beta"), absl::StrCat(params.beta), "a finite value > 0");
  }
  if (!(params.temperature >= 0) || !std::isfinite(params.temperature)) {
    return FieldError(name("temperature"), absl::StrCat(params.temperature), "a finite value >= 0");
  }
  if (params.first_position < 0) {
    return FieldError(name("first_position"), absl::StrCat(params.first_position), ">= 0");
  }
  return absl::OkStatus();
}

}  // namespace

size_t TopKLogProbScratchBytes(int64_t rows, int64_t vocabulary) {
  return static_cast<size_t>(rows * vocabulary) * sizeof(float);
}

size_t TopKLogProbCudaScratchBytes(int64_t rows, int64_t vocabulary) {
  const int64_t tiles = CeilDiv(vocabulary, kTopKTile);
  // Maxima: of rows that are several parts.
  return static_cast<size_t>(TopKMostParts(rows, vocabulary)) * sizeof(TopKPartResult) +
         static_cast<size_t>(std::min(rows, kTopKWantedBlocks) * tiles * kTopKTileMaxima) * sizeof(uint16_t) +
         static_cast<size_t>(rows * tiles) * sizeof(TopKTileSum) +
         static_cast<size_t>(rows) * sizeof(uint32_t);
}

absl::Status ValidateTopKLogProbShapes(const TopKLogProbArgs& args) {
  const LogitsView& logits = args.logits;
  if (logits.dtype != DType::kF32 && logits.dtype != DType::kBF16) {
    return FieldError("logits.dtype", std::string(Name(logits.dtype)), "F32 or BF16");
  }
  if (logits.columns < 1 || logits.row_stride < logits.columns) {
    return FieldError("logits.columns", absl::StrCat(logits.columns),
                      "at least 1 and at most the row stride");
  }
  const bool whole = args.params.size > 0 ? logits.rows % args.params.size == 0 : logits.rows == 0;
  if (!whole) {
    return FieldError("logits.rows", absl::StrCat(logits.rows),
                      absl::StrCat("a multiple of params.size=", args.params.size));
  }
  RETURN_IF_ERROR(CheckOutput("token", args.token, logits.rows));
  return CheckOutput("log_prob", args.log_prob, logits.rows);
}

absl::Status ValidateTopKLogProb(const TopKLogProbArgs& args) {
  RETURN_IF_ERROR(ValidateTopKLogProbShapes(args));
  const auto scratch = static_cast<int64_t>(TopKLogProbScratchBytes(args.logits.rows, args.logits.columns));
  if (args.scratch.size < scratch) {
    return FieldError("scratch.size", absl::StrCat(args.scratch.size), absl::StrCat("at least ", scratch));
  }
  for (int64_t stream = 0; stream < args.params.size; ++stream) {
    RETURN_IF_ERROR(ValidateParams(args, stream));
  }
  return absl::OkStatus();
}

const float* Fp32Row(const LogitsView& logits, int64_t row, float* memory) {
  if (logits.dtype == DType::kF32) {
    return static_cast<const float*>(logits.data) + row * logits.row_stride;
  }
  const BFloat16* stored = static_cast<const BFloat16*>(logits.data) + row * logits.row_stride;
  for (int64_t v = 0; v < logits.columns; ++v) {
    memory[v] = ToFloat(stored[v]);
  }
  return memory;
}

absl::Status NonFiniteDraftLogit(const TopKLogProbArgs& args, int64_t row) {
  auto* memory = reinterpret_cast<float*>(args.scratch.data) + row * args.logits.columns;
  const float* logits = Fp32Row(args.logits, row, memory);
  for (int64_t v = 0; v < args.logits.columns; ++v) {
    if (!std::isfinite(logits[v])) {
      return absl::InternalError(
          absl::StrCat("draft logits[", row, "][", v, "]=", logits[v], ", expected a finite value"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
