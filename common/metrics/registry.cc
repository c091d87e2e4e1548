#include "common/metrics/registry.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/metrics/scraped.h"
#include "prometheus/text_serializer.h"

namespace arborist {
namespace {

constexpr char kPrefix[] = "arborist_";

bool IsSnakeCase(const std::string& name) {
  for (const char c : name) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '_') {
      return false;
    }
  }
  return !name.empty() && absl::ascii_islower(name.front()) && name.back() != '_';
}

// The full name, once it is known to be a good one.
std::string Checked(const std::string& name, const std::string& type, const std::string& help,
                    const MetricRegistry::Labels& labels, std::map<std::string, std::string>& kinds) {
  Check(IsSnakeCase(name), absl::StrCat("a metric's name is snake case: ", name));
  Check(!absl::StartsWith(name, kPrefix), absl::StrCat("the prefix is added here: ", name));
  Check(absl::EndsWith(name, "_total") == (type == "counter"),
        absl::StrCat("a counter and only a counter ends in _total: ", name));
  Check(!help.empty(), absl::StrCat("a metric says what it is: ", name));
  std::string kind = absl::StrCat(type, ": ", help);
  for (const auto& [key, value] : labels) {
    Check(IsSnakeCase(key), absl::StrCat("a label is snake case: ", key));
    absl::StrAppend(&kind, ", ", key);
  }
  const auto [known, added] = kinds.emplace(name, kind);
  Check(added || known->second == kind, absl::StrCat("one name means one thing: ", name));
  return kPrefix + name;
}

}  // namespace

MetricRegistry::MetricRegistry()
    : registry_(std::make_shared<prometheus::Registry>()), scraped_(std::make_shared<Scraped>(registry_)) {}

prometheus::Counter& MetricRegistry::AddCounter(const std::string& name, const std::string& help,
                                                const Labels& labels) {
  return prometheus::BuildCounter()
      .Name(Checked(name, "counter", help, labels, kinds_))
      .Help(help)
      .Register(*registry_)
      .Add(labels);
}

prometheus::Gauge& MetricRegistry::AddGauge(const std::string& name, const std::string& help,
                                            const Labels& labels) {
  return prometheus::BuildGauge()
      .Name(Checked(name, "gauge", help, labels, kinds_))
      .Help(help)
      .Register(*registry_)
      .Add(labels);
}

prometheus::Histogram& MetricRegistry::AddHistogram(const std::string& name, const std::string& help,
                                                    const std::vector<double>& bounds, const Labels& labels) {
  return prometheus::BuildHistogram()
      .Name(Checked(name, "histogram", help, labels, kinds_))
      .Help(help)
      .Register(*registry_)
      .Add(labels, bounds);
}

HistogramTally& MetricRegistry::AddTally(const std::string& name, const std::string& help,
                                         const std::vector<double>& bounds, const Labels& labels) {
  return scraped_->AddTally(bounds, AddHistogram(name, help, bounds, labels));
}

std::string MetricRegistry::Text() const {
  return prometheus::TextSerializer().Serialize(scraped_->Collect());
}

void MetricRegistry::BeforeScrape(std::function<void()> refresh) { scraped_->AddRefresh(std::move(refresh)); }

}  // namespace arborist
