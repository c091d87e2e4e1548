#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace arborist {

// All that a process says to Prometheus. A metric is added once, at the start, with every value that its
// labels can have, so that it stands at zero before anything happened; what comes back is set from any thread
// and lives as long as the registry. Adding is not for a hot path: it locks and looks names up.
//
// Names are without the prefix arborist_, in snake case, with their unit last (_seconds, _bytes, _ratio); a
// counter ends in _total and nothing else does. `help` is one sentence. A name has one type, one help and one
// set of label keys. All this is Check()ed: names are ours.
class MetricRegistry {
 public:
  using Labels = std::map<std::string, std::string>;

  MetricRegistry() : registry_(std::make_shared<prometheus::Registry>()) {}

  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // `bounds` ascending: the largest value of each bucket but the last.
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bounds, const Labels& labels = {});

 private:
  friend class MetricExposer;

  // Shared with the exposer, which only sees it while it lives.
  std::shared_ptr<prometheus::Registry> registry_;
  std::map<std::string, std::string> kinds_;  // by name: type, help and label keys
};

}  // namespace arborist
