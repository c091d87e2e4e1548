#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace arborist {

// A measurement's log of what a device did and when: a line "begin end what" for each piece of recorded work,
// begin and end in nanoseconds of the host's monotonic clock, which all processes of a machine share. Lines
// are written out at the end, or when some thousands have gathered.
class WorkTrace {
 public:
  using Clock = std::chrono::steady_clock;

  // InvalidArgument if `path` cannot be written. Replaces what is there.
  static absl::StatusOr<WorkTrace> Open(const std::string& path);

  void Add(Clock::time_point end, std::chrono::nanoseconds duration, absl::string_view what);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit WorkTrace(std::FILE* file) : file_(file) {}

  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace arborist
