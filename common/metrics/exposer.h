#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/registry.h"

namespace prometheus {
class Exposer;
}

namespace arborist {

class ProcessCollector;

// Serves a registry, and what the process says of itself, over plain HTTP as GET /metrics, from eight threads
// of its own, until it is destroyed. A connection whose request has not come whole within 2 s is closed, so
// that half-open ones hold a scrape up for no longer, and only when there are eight. It has no
// authentication: listen where only Prometheus comes.
class MetricExposer {
 public:
  // `address` is one ip:port; port 0 lets the system choose. InvalidArgument for anything else,
  // FailedPrecondition when it cannot be listened on, both with the address. The registry outlives the
  // exposer.
  static absl::StatusOr<std::unique_ptr<MetricExposer>> Start(const std::string& address,
                                                              const MetricRegistry& registry);
  ~MetricExposer();

  int port() const;

 private:
  MetricExposer(std::unique_ptr<prometheus::Exposer> exposer, std::shared_ptr<ProcessCollector> process);

  std::shared_ptr<ProcessCollector> process_;
  std::unique_ptr<prometheus::Exposer> exposer_;
};

// For a service: null if no address is configured, else the exposer, whose port is told on stderr in the name
// of `process`.
absl::StatusOr<std::unique_ptr<MetricExposer>> ServeMetrics(const char* process, const std::string& address,
                                                            const MetricRegistry& registry);

}  // namespace arborist
