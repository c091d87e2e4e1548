#include "verifier/cost_curve.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "common/base/check.h"

namespace arborist::verifier {
namespace {

// A step on any machine, while nothing is known.
constexpr double kGuessSeconds = 1e-3;
constexpr double kSlowest = 1.0 / 16;
constexpr double kOutlier = 2;
constexpr double kFarFromStart = 4;
constexpr int64_t kOld = 256;
constexpr int64_t kLately = 1024;
constexpr int64_t kForgotten = 8192;

}  // namespace

int DoublingGroup(int count) { return std::bit_width(static_cast<unsigned>(std::max(count, 1) - 1)); }

void MoveMean(double sample, double slowest, double& mean, int& count) {
  count = std::min(count + 1, 1 << 20);
  mean += std::max(slowest, 1.0 / count) * (sample - mean);
}

CostCurve::CostCurve(std::vector<int> bounds)
    : bounds_(std::move(bounds)), at_start_(bounds_.size()), cells_(bounds_.size()) {
  Check(!bounds_.empty() && bounds_[0] >= 1 && std::is_sorted(bounds_.begin(), bounds_.end()),
        "sizes of steps ascend");
  over_start_.seconds = 1;
}

int CostCurve::BoundIndex(int rows) const {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), rows);
  return static_cast<int>(std::min<size_t>(at - bounds_.begin(), bounds_.size() - 1));
}

void CostCurve::SetAtStart(int bound, double seconds) { at_start_[BoundIndex(bound)] = seconds; }

// Between two measured sizes on a line; beyond the last in proportion to its rows.
double CostCurve::AtStart(int index) const {
  if (at_start_[index] > 0) {
    return at_start_[index];
  }
  int below = index - 1, above = index + 1;
  while (below >= 0 && at_start_[below] == 0) {
    --below;
  }
  while (above < static_cast<int>(bounds_.size()) && at_start_[above] == 0) {
    ++above;
  }
  const bool has_above = above < static_cast<int>(bounds_.size());
  if (below < 0) {
    return has_above ? at_start_[above] : kGuessSeconds;
  }
  if (!has_above) {
    return at_start_[below] * bounds_[index] / bounds_[below];
  }
  const double part =
      static_cast<double>(bounds_[index] - bounds_[below]) / (bounds_[above] - bounds_[below]);
  return at_start_[below] + part * (at_start_[above] - at_start_[below]);
}

bool CostCurve::Younger(const Cell& cell, int64_t steps) const {
  return cell.count > 0 && observed_ - cell.seen_at < steps;
}

void CostCurve::Observe(int rows, int sequences, double seconds) {
  const int index = BoundIndex(rows);
  Cell& cell = cells_[index][std::min(DoublingGroup(sequences), kGroups - 1)];
  if (const int64_t age = observed_ - cell.seen_at; age > kOld) {
    cell.count = age < kForgotten ? std::min(cell.count, 1) : 0;
  }
  const double sample = cell.count > 1 ? std::min(seconds, kOutlier * cell.seconds) : seconds;
  MoveMean(sample, kSlowest, cell.seconds, cell.count);
  cell.seen_at = ++observed_;
  MoveMean(std::clamp(sample / AtStart(index), 1 / kFarFromStart, kFarFromStart), kSlowest / 4,
           over_start_.seconds, over_start_.count);
}

double CostCurve::Seconds(int rows, int sequences) const {
  const int index = BoundIndex(rows);
  const double beyond = std::max(1.0, static_cast<double>(rows) / bounds_.back());
  const int group = std::min(DoublingGroup(sequences), kGroups - 1);
  if (Younger(cells_[index][group], kForgotten)) {
    return cells_[index][group].seconds * beyond;
  }
  // Lately with nearly as many sequences: more rows of fewer cost much the same.
  for (int distance = 1; distance < kGroups; ++distance) {
    for (const int near : {group - distance, group + distance}) {
      if (near >= 0 && near < kGroups && Younger(cells_[index][near], kLately)) {
        return cells_[index][near].seconds * beyond;
      }
    }
  }
  return AtStart(index) * over_start_.seconds * beyond;
}

}  // namespace arborist::verifier
