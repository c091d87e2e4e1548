#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "common/metrics/registry.h"

namespace arborist {

// What a process is: gauges that are always 1 and say it with their labels.
//
//   arborist_build_info{version, commit, cuda}  commit is "unknown" without a file COMMIT beside the binary,
//                                               cuda the toolkit's version or "none"
//   arborist_model_info{name, revision}         revision: whatever names the bytes in use, or ""
//   arborist_config_info{...}                   what a reader of graphs wants to know of the configuration
//
// Never names of files, peers or anything of a request.
void AddBuildInfo(MetricRegistry& registry);
void AddModelInfo(MetricRegistry& registry, const std::string& name, const std::string& revision);
void AddConfigInfo(MetricRegistry& registry, const MetricRegistry::Labels& labels);

// arborist_startup_duration_seconds{phase}: how long each phase of the start took, 0 until it is over, and
// "total" from the construction to Ready. One thread.
class StartupPhases {
 public:
  StartupPhases(MetricRegistry& registry, const std::vector<std::string>& phases);

  // The named phase, which began with the construction or the end of the one before, is over.
  void End(const std::string& phase);
  void Ready();

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point begin_ = Clock::now();
  Clock::time_point phase_begin_ = begin_;
  std::map<std::string, prometheus::Gauge*> gauges_;
};

}  // namespace arborist
