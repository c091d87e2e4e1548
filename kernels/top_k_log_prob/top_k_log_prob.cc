#include "kernels/top_k_log_prob/top_k_log_prob.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/top_k_log_prob/candidate_rule.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

template <typename View>
bool HasShape(const View& view, int64_t rows, int64_t columns) {
  return view.rows == rows && view.columns == columns && view.row_stride >= columns;
}

}  // namespace

absl::Status ValidateTopKLogProb(const TopKLogProbArgs& args) {
  const int64_t depths = args.logits.rows;
  const int64_t vocabulary = args.logits.columns;
  if (vocabulary < 1 || args.logits.row_stride < vocabulary) {
    return FieldError("logits.columns", absl::StrCat(vocabulary), "at least 1 and at most the row stride");
  }
  const int64_t max_k = std::min<int64_t>(kTopKLogProbMaxK, vocabulary);
  if (args.k < 1 || args.k > max_k) {
    return FieldError("k", absl::StrCat(args.k), absl::StrCat("1..", max_k));
  }
  if (!(args.beta > 0) || !std::isfinite(args.beta)) {
    return FieldError("beta", absl::StrCat(args.beta), "a finite value > 0");
  }
  if (!(args.temperature >= 0) || !std::isfinite(args.temperature)) {
    return FieldError("temperature", absl::StrCat(args.temperature), "a finite value >= 0");
  }
  if (args.first_position < 0) {
    return FieldError("first_position", absl::StrCat(args.first_position), ">= 0");
  }
  const auto one_a_depth = [&] {
    return absl::StrCat("[", depths, ", ", args.k, "] with a stride of at least k");
  };
  if (!HasShape(args.token, depths, args.k)) {
    return FieldError("token", absl::StrCat("[", args.token.rows, ", ", args.token.columns, "]"),
                      one_a_depth());
  }
  if (!HasShape(args.log_prob, depths, args.k)) {
    return FieldError("log_prob", absl::StrCat("[", args.log_prob.rows, ", ", args.log_prob.columns, "]"),
                      one_a_depth());
  }
  if (args.scratch.rows < depths || args.scratch.columns < vocabulary ||
      args.scratch.row_stride < vocabulary) {
    return FieldError("scratch", absl::StrCat("[", args.scratch.rows, ", ", args.scratch.columns, "]"),
                      absl::StrCat("at least [", depths, ", ", vocabulary, "]"));
  }
  return absl::OkStatus();
}

absl::Status NonFiniteDraftLogit(const TopKLogProbArgs& args, int64_t depth) {
  const float* logits = args.logits.row(depth);
  for (int64_t v = 0; v < args.logits.columns; ++v) {
    if (!std::isfinite(logits[v])) {
      return absl::InternalError(
          absl::StrCat("draft logits[", depth, "][", v, "]=", logits[v], ", expected a finite value"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
