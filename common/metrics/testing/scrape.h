#pragma once

#include <string>

#include "common/metrics/registry.h"

namespace arborist {

// What a scraper would get of these metrics now. Without its own port: to close one takes two seconds.
inline std::string Scrape(const MetricRegistry& metrics) { return "\n" + metrics.Text(); }

}  // namespace arborist
