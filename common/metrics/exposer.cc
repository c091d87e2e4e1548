// The one file with a try block: the HTTP server inside prometheus-cpp throws when it cannot listen.
#include "common/metrics/exposer.h"

#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/metrics/process_collector.h"
#include "common/metrics/scraped.h"
#include "prometheus/exposer.h"

namespace arborist {
namespace {

// A connection takes a thread until its request has come whole, and a scrape waits for a free one: so a
// request that does not come is given up soon, and a handful of them leaves threads over.
std::vector<std::string> ServerOptions(const std::string& address) {
  return {"listening_ports", address, "num_threads", "8", "request_timeout_ms", "2000"};
}

// The server would take a list of ports, options behind a port ("9101s") and the like.
bool IsOneAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  return colon != std::string::npos && colon > 0 && colon + 1 < address.size() &&
         address.find_first_of(", \t+") == std::string::npos &&
         address.find_first_not_of("0123456789", colon + 1) == std::string::npos;
}

}  // namespace

MetricExposer::MetricExposer(std::unique_ptr<prometheus::Exposer> exposer,
                             std::shared_ptr<ProcessCollector> process)
    : process_(std::move(process)), exposer_(std::move(exposer)) {}

MetricExposer::~MetricExposer() = default;

absl::StatusOr<std::unique_ptr<MetricExposer>> MetricExposer::Start(const std::string& address,
                                                                    const MetricRegistry& registry) {
  if (!IsOneAddress(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics.listen=", address, ", expected ip:port, as 127.0.0.1:9101"));
  }
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(ServerOptions(address));
    auto process = std::make_shared<ProcessCollector>();
    exposer->RegisterCollectable(registry.scraped_);
    exposer->RegisterCollectable(process);
    return std::unique_ptr<MetricExposer>(new MetricExposer(std::move(exposer), std::move(process)));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("metrics.listen=", address,
                     ", expected a free ip:port of this machine to serve metrics on (", error.what(), ")"));
  }
}

int MetricExposer::port() const { return exposer_->GetListeningPorts().front(); }

absl::StatusOr<std::unique_ptr<MetricExposer>> ServeMetrics(const char* process, const std::string& address,
                                                            const MetricRegistry& registry) {
  if (address.empty()) {
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<MetricExposer>> exposer = MetricExposer::Start(address, registry);
  if (exposer.ok()) {
    std::fprintf(stderr, "%s: metrics on port %d\n", process, (*exposer)->port());
  }
  return exposer;
}

}  // namespace arborist
