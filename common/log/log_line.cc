#include "common/log/log_line.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"

namespace arborist {
namespace {

absl::string_view NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "ERROR";
}

bool IsPlain(absl::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' && c != '\\' && c != '=';
  });
}

}  // namespace

LogLine::LogLine(LogLevel level, absl::string_view event)
    : text_(absl::StrCat("time=", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()),
                         " level=", NameOf(level), " event=", event)) {}

LogLine& LogLine::Add(absl::string_view key, absl::string_view value) {
  Check(!key.empty(), "a value of a log line has a key");
  const absl::string_view kept = value.substr(0, kMaxValueBytes);
  if (IsPlain(kept)) {
    absl::StrAppend(&text_, " ", key, "=", kept);
  } else {
    absl::StrAppend(&text_, " ", key, "=\"", absl::CHexEscape(kept), "\"");
  }
  return *this;
}

LogLine& LogLine::Add(absl::string_view key, int64_t value) { return Add(key, absl::StrCat(value)); }

LogLine& LogLine::Add(absl::string_view key, double value) { return Add(key, absl::StrCat(value)); }

void LogLine::Write() const {
  const std::string line = text_ + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace arborist
