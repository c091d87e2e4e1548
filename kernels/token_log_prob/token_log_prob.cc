#include "kernels/token_log_prob/token_log_prob.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/sample_target/sampling_rule.h"
#include "kernels/token_log_prob/token_log_prob_cuda.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status CheckBelow(const std::string& field, TokenId token, int64_t vocabulary) {
  return Raw(token) < vocabulary ? absl::OkStatus()
                                 : FieldError(field, absl::StrCat(Raw(token)),
                                              absl::StrCat("an id below ", vocabulary, ", or -1"));
}

}  // namespace

absl::Status ValidateTokenLogProbShapes(const TokenLogProbArgs& args) {
  const int64_t rows = args.logits.rows;
  if (args.logits.columns < 1 || args.logits.columns > kMaxVocabulary ||
      args.logits.row_stride < args.logits.columns) {
    return FieldError("logits.columns", absl::StrCat(args.logits.columns),
                      absl::StrCat("1..", kMaxVocabulary, " and at most the row stride"));
  }
  const std::string one_a_row = absl::StrCat("logits.rows=", rows);
  if (args.chosen.size != rows) {
    return FieldError("chosen.size", absl::StrCat(args.chosen.size), one_a_row);
  }
  if (args.forced.size != 0 && args.forced.size != rows) {
    return FieldError("forced.size", absl::StrCat(args.forced.size), absl::StrCat("0 or ", one_a_row));
  }
  if (args.top.columns != 0 && (args.top.rows != rows || args.top.row_stride < args.top.columns)) {
    return FieldError("top", absl::StrCat("[", args.top.rows, ", ", args.top.columns, "]"),
                      absl::StrCat("[", rows, ", any] with a stride of at least the columns"));
  }
  const int64_t counts = args.top.columns == 0 ? 0 : rows;
  if (args.top_count.size != counts) {
    return FieldError("top_count.size", absl::StrCat(args.top_count.size),
                      absl::StrCat(counts, ", one a row where top has columns"));
  }
  if (args.log_prob.rows != rows || args.log_prob.columns != 1 + args.top.columns ||
      args.log_prob.row_stride < args.log_prob.columns) {
    return FieldError(
        "log_prob", absl::StrCat("[", args.log_prob.rows, ", ", args.log_prob.columns, "]"),
        absl::StrCat("[", rows, ", ", 1 + args.top.columns, "] with a stride of at least the columns"));
  }
  if (reinterpret_cast<uintptr_t>(args.scratch.data) % 64 != 0) {
    return absl::InvalidArgumentError("scratch.data is not aligned, expected 64 bytes");
  }
  return absl::OkStatus();
}

size_t TokenLogProbCudaScratchBytes(int64_t rows, int64_t vocabulary) {
  return static_cast<size_t>(rows * CeilDiv(vocabulary, kSampleChunk)) * sizeof(LogProbChunk);
}

absl::Status ValidateTokenLogProb(const TokenLogProbArgs& args) {
  RETURN_IF_ERROR(ValidateTokenLogProbShapes(args));
  for (int64_t r = 0; r < args.logits.rows; ++r) {
    RETURN_IF_ERROR(CheckBelow(absl::StrCat("chosen[", r, "]"), args.chosen[r], args.logits.columns));
    if (args.forced.size != 0) {
      RETURN_IF_ERROR(CheckBelow(absl::StrCat("forced[", r, "]"), args.forced[r], args.logits.columns));
    }
    if (args.top.columns == 0) {
      continue;
    }
    if (args.top_count[r] < 0 || args.top_count[r] > args.top.columns) {
      return FieldError(absl::StrCat("top_count[", r, "]"), absl::StrCat(args.top_count[r]),
                        absl::StrCat("0..", args.top.columns));
    }
    for (int64_t i = 0; i < args.top_count[r]; ++i) {
      RETURN_IF_ERROR(
          CheckBelow(absl::StrCat("top[", r, "][", i, "]"), args.top.row(r)[i], args.logits.columns));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
