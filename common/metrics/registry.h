#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/metrics/histogram_tally.h"
#include "prometheus/collectable.h"
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

  MetricRegistry();

  prometheus::Counter& AddCounter(const std::string& name, const std::string& help,
                                  const Labels& labels = {});
  prometheus::Gauge& AddGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // `bounds` ascending: the largest value of each bucket but the last.
  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const std::vector<double>& bounds, const Labels& labels = {});
  // A histogram that may be observed where nothing may wait, as on a thread that decodes.
  HistogramTally& AddTally(const std::string& name, const std::string& help,
                           const std::vector<double>& bounds, const Labels& labels = {});

  // `refresh` is called before every scrape, on its thread, one scrape at a time: it sets gauges to what is
  // known elsewhere. What it uses outlives the exposer. Any thread adds.
  void BeforeScrape(std::function<void()> refresh);

  // All of it now, as a scrape gets it.
  std::string Text() const;

 private:
  friend class MetricExposer;
  class Scraped;

  // Shared with the exposer, which only sees it while it lives.
  std::shared_ptr<prometheus::Registry> registry_;
  std::shared_ptr<Scraped> scraped_;
  std::map<std::string, std::string> kinds_;  // by name: type, help and label keys
};

}  // namespace arborist
