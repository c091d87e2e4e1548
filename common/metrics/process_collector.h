#pragma once

#include <vector>

#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace arborist {

// What every process says of itself, read from /proc at each scrape, under the names that Prometheus'
// own clients use (without our prefix, so that dashboards for any process work):
//
//   process_cpu_seconds_total     user and system time
//   process_resident_memory_bytes, process_virtual_memory_bytes
//   process_open_fds, process_max_fds
//   process_threads
//   process_start_time_seconds    since the epoch
//
// A figure that cannot be read is left out. Thread-safe.
class ProcessCollector : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace arborist
