#include "common/device/work_trace.h"

#include "absl/strings/str_cat.h"

namespace arborist {
namespace {

// Writing must not fall into what is measured.
constexpr size_t kBufferBytes = 1 << 20;

long long Nanoseconds(WorkTrace::Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

}  // namespace

absl::StatusOr<WorkTrace> WorkTrace::Open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("gpu.trace_path=", path, ", expected a file that can be written"));
  }
  std::setvbuf(file, nullptr, _IOFBF, kBufferBytes);
  return WorkTrace(file);
}

void WorkTrace::Add(Clock::time_point end, std::chrono::nanoseconds duration, absl::string_view what) {
  const auto at = end.time_since_epoch();
  std::fprintf(file_.get(), "%lld %lld %.*s\n", Nanoseconds(at - duration), Nanoseconds(at),
               static_cast<int>(what.size()), what.data());
}

}  // namespace arborist
