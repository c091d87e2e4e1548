#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/metrics/registry.h"

namespace arborist {

// The registry as a scrape sees it: brought up to date first. Thread-safe.
class MetricRegistry::Scraped : public prometheus::Collectable {
 public:
  explicit Scraped(std::shared_ptr<prometheus::Registry> registry) : registry_(std::move(registry)) {}

  HistogramTally& AddTally(const std::vector<double>& bounds, prometheus::Histogram& histogram) {
    const std::lock_guard lock(mutex_);
    for (Tally& known : tallies_) {
      if (known.histogram == &histogram) {
        return known.tally;  // the same metric added again
      }
    }
    return tallies_.emplace_back(bounds, &histogram).tally;
  }

  void AddRefresh(std::function<void()> refresh) {
    const std::lock_guard lock(mutex_);
    refreshes_.push_back(std::move(refresh));
  }

  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::lock_guard lock(mutex_);
    for (const auto& refresh : refreshes_) {
      refresh();
    }
    for (Tally& each : tallies_) {
      each.tally.MoveTo(*each.histogram);
    }
    return registry_->Collect();
  }

 private:
  struct Tally {
    Tally(const std::vector<double>& bounds, prometheus::Histogram* to) : tally(bounds), histogram(to) {}
    HistogramTally tally;
    prometheus::Histogram* histogram;
  };

  const std::shared_ptr<prometheus::Registry> registry_;
  mutable std::mutex mutex_;
  mutable std::deque<Tally> tallies_;  // stay where they are
  std::vector<std::function<void()>> refreshes_;
};

}  // namespace arborist
