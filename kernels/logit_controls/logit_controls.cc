#include "kernels/logit_controls/logit_controls.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"

namespace arborist::kernels {
namespace {

absl::Status FieldError(const std::string& field, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

// The name is put together only where it is told: steps allocate nothing.
absl::Status CheckFinite(const std::string& owner, const char* field, float value) {
  return std::isfinite(value)
             ? absl::OkStatus()
             : FieldError(absl::StrCat(owner, ".", field), absl::StrCat(value), "a finite value");
}

// `owner` names whose run it is.
absl::Status ValidateRun(const LogitControlsArgs& args, const std::string& owner, const EntryRun& run) {
  if (run.first < 0 || run.count < 0 || int64_t{run.first} + run.count > args.entry.size) {
    return FieldError(absl::StrCat(owner, ".entries"), absl::StrCat("{", run.first, ", ", run.count, "}"),
                      absl::StrCat("a run inside the ", args.entry.size, " entries"));
  }
  int32_t least = 0;
  for (int64_t i = run.first; i < int64_t{run.first} + run.count; ++i) {
    const LogitEntry& entry = args.entry[i];
    const auto name = [&](const char* field) { return absl::StrCat("entry[", i, "].", field); };
    if (Raw(entry.token) < least || Raw(entry.token) >= args.raw.columns) {
      return FieldError(
          name("token"), absl::StrCat(Raw(entry.token)),
          absl::StrCat("an id in [", least, ", ", args.raw.columns, "), above the one before in its run"));
    }
    least = Raw(entry.token) + 1;
    if (!std::isfinite(entry.bias)) {
      return FieldError(name("bias"), absl::StrCat(entry.bias), "a finite value");
    }
    if (entry.output_count < 0) {
      return FieldError(name("output_count"), absl::StrCat(entry.output_count), ">= 0");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateSequence(const LogitControlsArgs& args, int64_t i) {
  const SequenceControls& controls = args.sequence[i];
  const std::string owner = absl::StrCat("sequence[", i, "]");
  if (!std::isfinite(controls.repetition) || controls.repetition <= 0) {
    return FieldError(absl::StrCat(owner, ".repetition"), absl::StrCat(controls.repetition),
                      "a finite value > 0");
  }
  RETURN_IF_ERROR(CheckFinite(owner, "presence", controls.presence));
  RETURN_IF_ERROR(CheckFinite(owner, "frequency", controls.frequency));
  return ValidateRun(args, owner, controls.entries);
}

absl::Status ValidateRow(const LogitControlsArgs& args, int64_t i) {
  const RowControls& row = args.row[i];
  const std::string owner = absl::StrCat("row[", i, "]");
  if (row.sequence < -1 || row.sequence >= args.sequence.size) {
    return FieldError(absl::StrCat(owner, ".sequence"), absl::StrCat(row.sequence),
                      absl::StrCat("-1 or an index below ", args.sequence.size));
  }
  if (row.mask < -1 || row.mask >= args.mask.rows) {
    return FieldError(absl::StrCat(owner, ".mask"), absl::StrCat(row.mask),
                      absl::StrCat("-1 or an index below ", args.mask.rows));
  }
  return ValidateRun(args, owner, row.entries);
}

}  // namespace

absl::Status ValidateLogitControlsShapes(const LogitControlsArgs& args) {
  if (args.raw.row_stride < args.raw.columns) {
    return FieldError("raw.row_stride", absl::StrCat(args.raw.row_stride),
                      absl::StrCat("at least raw.columns=", args.raw.columns));
  }
  if (args.choice.rows != args.raw.rows || args.choice.columns != args.raw.columns ||
      args.choice.row_stride < args.choice.columns) {
    return FieldError(
        "choice", absl::StrCat("[", args.choice.rows, ", ", args.choice.columns, "]"),
        absl::StrCat("[", args.raw.rows, ", ", args.raw.columns, "] with a stride of at least the columns"));
  }
  if (args.raw.rows > 0 && args.choice.data == args.raw.data) {
    return absl::InvalidArgumentError("choice is raw, expected other memory");
  }
  if (args.row.size != args.raw.rows) {
    return FieldError("row.size", absl::StrCat(args.row.size), absl::StrCat("raw.rows=", args.raw.rows));
  }
  if (reinterpret_cast<uintptr_t>(args.entry.data) % alignof(LogitEntry) != 0) {
    return absl::InvalidArgumentError("entry.data is not aligned, expected 16 bytes");
  }
  if (args.mask.rows > 0 && (args.mask.columns < CeilDiv(args.raw.columns, int64_t{32}) ||
                             args.mask.row_stride < args.mask.columns)) {
    return FieldError("mask.columns", absl::StrCat(args.mask.columns),
                      absl::StrCat("at least ", CeilDiv(args.raw.columns, int64_t{32}),
                                   " words, and at most the row stride"));
  }
  return absl::OkStatus();
}

absl::Status ValidateLogitControls(const LogitControlsArgs& args) {
  RETURN_IF_ERROR(ValidateLogitControlsShapes(args));
  for (int64_t i = 0; i < args.sequence.size; ++i) {
    RETURN_IF_ERROR(ValidateSequence(args, i));
  }
  for (int64_t i = 0; i < args.row.size; ++i) {
    RETURN_IF_ERROR(ValidateRow(args, i));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
