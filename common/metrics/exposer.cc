// The one file with a try block: the HTTP server inside prometheus-cpp throws when it cannot listen.
#include "common/metrics/exposer.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"

namespace arborist {

MetricExposer::MetricExposer(std::unique_ptr<prometheus::Exposer> exposer) : exposer_(std::move(exposer)) {}

MetricExposer::~MetricExposer() = default;

absl::StatusOr<std::unique_ptr<MetricExposer>> MetricExposer::Start(const std::string& address,
                                                                    const MetricRegistry& registry) {
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address);
    exposer->RegisterCollectable(registry.registry_);
    return std::unique_ptr<MetricExposer>(new MetricExposer(std::move(exposer)));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("metrics.listen=", address,
                     ", expected a free ip:port of this machine to serve metrics on (", error.what(), ")"));
  }
}

int MetricExposer::port() const { return exposer_->GetListeningPorts().front(); }

}  // namespace arborist
