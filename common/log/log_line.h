#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace arborist {

enum class LogLevel { kInfo, kWarning, kError };

// Lines below it are not written; kInfo unless it is set. Of the whole process.
void SetLogLevel(LogLevel least);

// Writes the rest of a line that begins with its level, "level=INFO event=...", as LogLine does.
void WriteLogLine(absl::string_view from_level);

// One line for the log: time, level, event, then what is added, in order. Keys are ours, in snake case;
// values may come from anywhere but a prompt or an answer.
class LogLine {
 public:
  // The longest value; more is cut.
  static constexpr size_t kMaxValueBytes = 256;

  LogLine(LogLevel level, absl::string_view event);

  // Quoted unless it is plain: printable ASCII without blank, quote, backslash or '='.
  LogLine& Add(absl::string_view key, absl::string_view value);
  LogLine& Add(absl::string_view key, const char* value) { return Add(key, absl::string_view(value)); }
  LogLine& Add(absl::string_view key, int64_t value);
  // Six significant digits.
  LogLine& Add(absl::string_view key, double value);

  // Without an end of line.
  const std::string& text() const { return text_; }

  // To stderr, in one piece, unless its level is below the process's.
  void Write() const;

 private:
  LogLevel level_;
  std::string text_;
};

}  // namespace arborist
