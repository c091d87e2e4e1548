#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/metrics/registry.h"

namespace arborist {

// One counter for each canonical code, all at zero from the start.
class CountersByCode {
 public:
  CountersByCode(MetricRegistry& registry, const std::string& name, const std::string& help) {
    for (int code = 0; code <= 16; ++code) {  // as gRPC numbers them
      const auto as_code = static_cast<absl::StatusCode>(code);
      counters_[as_code] = &registry.AddCounter(name, help, {{"code", absl::StatusCodeToString(as_code)}});
    }
  }

  // Any thread; does not wait.
  void Count(absl::StatusCode code) {
    const auto known = counters_.find(code);
    (known == counters_.end() ? counters_.at(absl::StatusCode::kUnknown) : known->second)->Increment();
  }

 private:
  std::map<absl::StatusCode, prometheus::Counter*> counters_;
};

}  // namespace arborist
