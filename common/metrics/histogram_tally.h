#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "prometheus/histogram.h"

namespace arborist {

// Counts observations where nothing may wait: prometheus::Histogram takes a lock, which a scrape may hold.
// Any thread observes; the registry moves what was counted into the histogram at each scrape.
class HistogramTally {
 public:
  // `bounds` ascending: the largest value of each bucket but the last.
  explicit HistogramTally(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(new std::atomic<uint64_t>[bounds_.size() + 1] {}) {}

  // The same value several times, as for the tokens of one chunk; none with times <= 0.
  void Observe(double value, int64_t times = 1) {
    if (times <= 0) {
      return;
    }
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    counts_[static_cast<size_t>(bucket)].fetch_add(static_cast<uint64_t>(times), std::memory_order_relaxed);
    sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
  }

  // One thread at a time. An observation made meanwhile may be in the counts and not yet in the sum.
  void MoveTo(prometheus::Histogram& histogram) {
    std::vector<double> increments(bounds_.size() + 1);
    for (size_t i = 0; i < increments.size(); ++i) {
      increments[i] = static_cast<double>(counts_[i].exchange(0, std::memory_order_relaxed));
    }
    histogram.ObserveMultiple(increments, sum_.exchange(0, std::memory_order_relaxed));
  }

 private:
  const std::vector<double> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace arborist
