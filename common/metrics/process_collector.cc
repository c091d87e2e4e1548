#include "common/metrics/process_collector.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace arborist {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

void AddGauge(const char* name, const char* help, double value, Families& families) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  families.push_back({name, help, prometheus::MetricType::Gauge, {std::move(metric)}});
}

void AddCounter(const char* name, const char* help, double value, Families& families) {
  prometheus::ClientMetric metric;
  metric.counter.value = value;
  families.push_back({name, help, prometheus::MetricType::Counter, {std::move(metric)}});
}

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Of /proc/self/stat; see proc(5).
struct Stat {
  double cpu_ticks = 0;
  double threads = 0;
  double start_ticks = 0;  // since boot
  double virtual_bytes = 0;
  double resident_pages = 0;
};

std::optional<Stat> ReadStat() {
  const std::string text = ReadAll("/proc/self/stat");
  const size_t name_end = text.rfind(')');  // the name may hold spaces and brackets
  if (name_end == std::string::npos || name_end + 2 > text.size()) {
    return std::nullopt;
  }
  // The first field here is the third of proc(5).
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  const auto field = [&fields](size_t number) {
    double value = 0;
    return number - 3 < fields.size() && absl::SimpleAtod(fields[number - 3], &value) ? value : 0;
  };
  return Stat{.cpu_ticks = field(14) + field(15),
              .threads = field(20),
              .start_ticks = field(22),
              .virtual_bytes = field(23),
              .resident_pages = field(24)};
}

// Seconds since the epoch at which this machine started.
std::optional<double> BootSeconds() {
  for (const absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::StartsWith(line, "btime ") && absl::SimpleAtod(line.substr(6), &seconds)) {
      return seconds;
    }
  }
  return std::nullopt;
}

std::optional<double> OpenFiles() {
  std::error_code error;
  auto files = std::filesystem::directory_iterator("/proc/self/fd", error);
  double count = -1;  // the one that lists them
  while (!error && files != std::filesystem::directory_iterator()) {
    ++count;
    files.increment(error);
  }
  return error ? std::nullopt : std::optional<double>(count);
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessCollector::Collect() const {
  Families families;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (const std::optional<Stat> stat = ReadStat(); stat.has_value()) {
    AddCounter("process_cpu_seconds_total", "User and system CPU time.", stat->cpu_ticks / ticks, families);
    AddGauge("process_resident_memory_bytes", "Resident memory.",
             stat->resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE)), families);
    AddGauge("process_virtual_memory_bytes", "Virtual memory.", stat->virtual_bytes, families);
    AddGauge("process_threads", "Threads.", stat->threads, families);
    if (const std::optional<double> boot = BootSeconds(); boot.has_value()) {
      AddGauge("process_start_time_seconds", "When the process started, since the epoch.",
               *boot + stat->start_ticks / ticks, families);
    }
  }
  if (const std::optional<double> open = OpenFiles(); open.has_value()) {
    AddGauge("process_open_fds", "Open file descriptors.", *open, families);
  }
  if (rlimit limit{}; getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    AddGauge("process_max_fds", "The most open file descriptors.", static_cast<double>(limit.rlim_cur),
             families);
  }
  return families;
}

}  // namespace arborist
