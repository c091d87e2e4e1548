#include "kernels/tree_build/tree_build.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "kernels/tree_build/stream_candidates.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status ValidateParams(const TreeBuildArgs& args, int64_t stream) {
  const TreeBuildParams& params = args.params[stream];
  const auto name = [&](const char* field) { return absl::StrCat("params[", stream, "].", field); };
  const int64_t max_budget = std::min<int64_t>(kTreeBuildMaxBudget, args.out_token.columns - 1);
  if (params.budget < 0 || params.budget > max_budget) {
    return FieldError(name("budget"), absl::StrCat(params.budget), absl::StrCat("0..", max_budget));
  }
  const int64_t max_depths = std::min<int64_t>(kTreeBuildMaxDepth, args.token.rows / args.params.size);
  if (params.depths < 0 || params.depths > max_depths) {
    return FieldError(name("depths"), absl::StrCat(params.depths), absl::StrCat("0..", max_depths));
  }
  const int least_k = params.depths > 0 ? 1 : 0;
  if (params.k < least_k || params.k > args.token.columns) {
    return FieldError(name("k"), absl::StrCat(params.k), absl::StrCat(least_k, "..", args.token.columns));
  }
  return absl::OkStatus();
}

absl::Status ValidateRow(const TreeBuildArgs& args, int64_t row, int32_t k) {
  const float* log_prob = args.log_prob.row(row);
  const TokenId* token = args.token.row(row);
  for (int64_t rank = 0; rank < k; ++rank) {
    const float value = log_prob[rank];
    if (!std::isfinite(value) || value > 0) {
      return FieldError(absl::StrCat("log_prob[", row, "][", rank, "]"), absl::StrCat(value),
                        "a finite value <= 0");
    }
    if (rank > 0 && value > log_prob[rank - 1]) {
      return FieldError(absl::StrCat("log_prob[", row, "][", rank, "]"), absl::StrCat(value),
                        absl::StrCat("at most the rank before, ", log_prob[rank - 1]));
    }
    bool repeated = false;
    for (int64_t earlier = 0; earlier < rank; ++earlier) {
      repeated |= token[earlier] == token[rank];
    }
    if (repeated) {
      return FieldError(absl::StrCat("token[", row, "][", rank, "]"), absl::StrCat(Raw(token[rank])),
                        "a token that no earlier rank of this row has");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateTreeBuildShapes(const TreeBuildArgs& args) {
  const int64_t streams = args.params.size;
  const bool whole = streams > 0 ? args.token.rows % streams == 0 : args.token.rows == 0;
  if (!whole) {
    return FieldError("token.rows", absl::StrCat(args.token.rows),
                      absl::StrCat("a multiple of params.size=", streams));
  }
  if (args.token.columns > kTreeBuildMaxK) {
    return FieldError("token.columns", absl::StrCat(args.token.columns), absl::StrCat("0..", kTreeBuildMaxK));
  }
  if (args.log_prob.rows != args.token.rows) {
    return FieldError("log_prob.rows", absl::StrCat(args.log_prob.rows),
                      absl::StrCat("token.rows=", args.token.rows));
  }
  if (args.log_prob.columns != args.token.columns) {
    return FieldError("log_prob.columns", absl::StrCat(args.log_prob.columns),
                      absl::StrCat("token.columns=", args.token.columns));
  }
  const int64_t width = args.out_token.columns;
  if (args.out_token.rows != streams || width < 1) {
    return FieldError("out_token", absl::StrCat("[", args.out_token.rows, ", ", width, "]"),
                      absl::StrCat("[", streams, ", at least 1]"));
  }
  if (args.out_parent.rows != streams || args.out_parent.columns != width || args.out_score.rows != streams ||
      args.out_score.columns != width) {
    return FieldError("out_parent or out_score",
                      absl::StrCat("[", args.out_parent.rows, ", ", args.out_parent.columns, "] and [",
                                   args.out_score.rows, ", ", args.out_score.columns, "]"),
                      "the shape of out_token");
  }
  if (args.out_nodes.size != streams) {
    return FieldError("out_nodes.size", absl::StrCat(args.out_nodes.size),
                      absl::StrCat("params.size=", streams));
  }
  if (args.error.size != 0 && args.error.size != streams) {
    return FieldError("error.size", absl::StrCat(args.error.size),
                      absl::StrCat("0 or params.size=", streams));
  }
  return absl::OkStatus();
}

absl::Status ValidateTreeBuild(const TreeBuildArgs& args) {
  RETURN_IF_ERROR(ValidateTreeBuildShapes(args));
  for (int64_t stream = 0; stream < args.params.size; ++stream) {
    RETURN_IF_ERROR(ValidateParams(args, stream));
    const int64_t first_row = stream * (args.token.rows / args.params.size);
    for (int64_t depth = 0; depth < args.params[stream].depths; ++depth) {
      RETURN_IF_ERROR(ValidateRow(args, first_row + depth, args.params[stream].k));
    }
  }
  return absl::OkStatus();
}

StreamCandidates CandidatesOf(const TreeBuildArgs& args, int64_t stream) {
  const TreeBuildParams& params = args.params[stream];
  const int64_t first_row = stream * (args.token.rows / args.params.size);
  return {.root = params.root,
          .depths = params.depths,
          .k = params.k,
          .budget = params.budget,
          .token = {args.token.row(first_row), params.depths, params.k, args.token.row_stride},
          .log_prob = {args.log_prob.row(first_row), params.depths, params.k, args.log_prob.row_stride},
          .out_token = args.out_token.row(stream),
          .out_parent = args.out_parent.row(stream),
          .out_score = args.out_score.row(stream),
          .out_nodes = &args.out_nodes[stream]};
}

}  // namespace arborist::kernels
