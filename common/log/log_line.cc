#include "common/log/log_line.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"

namespace arborist {
namespace {

std::atomic<LogLevel> least_level{LogLevel::kInfo};

std::string TimeNow() {
  return absl::StrCat("time=", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()));
}

void WriteIfHighEnough(LogLevel level, const std::string& line) {
  if (level >= least_level.load(std::memory_order_relaxed)) {
    std::fwrite(line.data(), 1, line.size(), stderr);
  }
}

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
    : level_(level), text_(absl::StrCat(TimeNow(), " level=", NameOf(level), " event=", event)) {}

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

void LogLine::Write() const { WriteIfHighEnough(level_, text_ + "\n"); }

void SetLogLevel(LogLevel least) { least_level.store(least, std::memory_order_relaxed); }

void WriteLogLine(absl::string_view from_level) {
  LogLevel level = LogLevel::kInfo;
  for (const LogLevel candidate : {LogLevel::kWarning, LogLevel::kError}) {
    if (absl::StartsWith(from_level, absl::StrCat("level=", NameOf(candidate), " "))) {
      level = candidate;
    }
  }
  WriteIfHighEnough(level, absl::StrCat(TimeNow(), " ", from_level, "\n"));
}

}  // namespace arborist
