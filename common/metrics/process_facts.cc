#include "common/metrics/process_facts.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "common/base/check.h"

namespace arborist {
namespace {

// The build and the bundle write it beside the binaries.
std::string Commit() {
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  std::ifstream file(binary.parent_path() / "COMMIT");
  std::string commit;
  return !error && file >> commit ? commit : "unknown";
}

}  // namespace

void AddBuildInfo(MetricRegistry& registry) {
  registry
      .AddGauge("build_info", "What was built, in its labels.",
                {{"version", ARBORIST_VERSION}, {"commit", Commit()}, {"cuda", ARBORIST_CUDA_VERSION}})
      .Set(1);
}

void AddModelInfo(MetricRegistry& registry, const std::string& name, const std::string& revision) {
  registry.AddGauge("model_info", "What is served, in its labels.", {{"name", name}, {"revision", revision}})
      .Set(1);
}

void AddConfigInfo(MetricRegistry& registry, const MetricRegistry::Labels& labels) {
  registry.AddGauge("config_info", "How it is configured, in its labels.", labels).Set(1);
}

StartupPhases::StartupPhases(MetricRegistry& registry, const std::vector<std::string>& phases) {
  const auto add = [&](const std::string& phase) {
    gauges_[phase] =
        &registry.AddGauge("startup_duration_seconds",
                           "Time that a phase of the start took, 0 until it is over.", {{"phase", phase}});
  };
  for (const std::string& phase : phases) {
    add(phase);
  }
  add("total");
}

void StartupPhases::End(const std::string& phase) {
  const auto gauge = gauges_.find(phase);
  Check(gauge != gauges_.end(), "a phase is named at the start: " + phase);
  const Clock::time_point now = Clock::now();
  gauge->second->Set(std::chrono::duration<double>(now - phase_begin_).count());
  phase_begin_ = now;
}

void StartupPhases::Ready() {
  gauges_.at("total")->Set(std::chrono::duration<double>(Clock::now() - begin_).count());
}

}  // namespace arborist
