#pragma once

#include <string>

#include "common/metrics/exposer.h"
#include "common/metrics/registry.h"
#include "common/metrics/testing/http_get.h"
#include "gtest/gtest.h"

namespace arborist {

// What a scraper would get of these metrics now, over a port of its own.
inline std::string Scrape(MetricRegistry& metrics) {
  auto exposer = MetricExposer::Start("127.0.0.1:0", metrics);
  EXPECT_TRUE(exposer.ok()) << exposer.status();
  return exposer.ok() ? HttpGet((*exposer)->port(), "/metrics") : "";
}

}  // namespace arborist
