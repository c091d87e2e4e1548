#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/metrics/registry.h"

namespace prometheus {
class Exposer;
}

namespace arborist {

// Serves a registry over plain HTTP as GET /metrics, from two threads of its own, until it is destroyed. It
// has no authentication: listen where only Prometheus comes.
class MetricExposer {
 public:
  // `address` is ip:port; port 0 lets the system choose. FailedPrecondition,
  // with the address, when it cannot be listened on. The registry outlives the exposer.
  static absl::StatusOr<std::unique_ptr<MetricExposer>> Start(const std::string& address,
                                                              const MetricRegistry& registry);
  ~MetricExposer();

  int port() const;

 private:
  explicit MetricExposer(std::unique_ptr<prometheus::Exposer> exposer);

  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace arborist
