#pragma once

#include <algorithm>
#include <iterator>
#include <mutex>
#include <ostream>
#include <vector>

#include "verifier/shadow.h"

namespace arborist::verifier {

// Keeps what shadow verification reports. Outlives the verifier.
class ShadowLog {
 public:
  // Every chosen step is compared, however long that takes.
  ShadowOptions Options(double fraction, double limit) {
    return {.fraction = fraction,
            .kernels = {},
            .relative_limit = limit,
            .rows = 6,
            .exact = true,
            .seed = 3,
            .wait = true,
            .on_report =
                [this](const ShadowReport& report) {
                  const std::lock_guard lock(mutex_);
                  reports_.push_back(report);
                },
            .on_passed_over = nullptr};
  }

  // After the verifier is gone.
  const std::vector<ShadowReport>& reports() const { return reports_; }
  std::vector<ShadowReport> Faults() const {
    std::vector<ShadowReport> faults;
    std::copy_if(reports_.begin(), reports_.end(), std::back_inserter(faults),
                 [](const ShadowReport& report) { return report.fault; });
    return faults;
  }
  std::vector<ShadowKernel> Kernels() const { return Distinct(reports_); }
  std::vector<ShadowKernel> FaultyKernels() const { return Distinct(Faults()); }

 private:
  static std::vector<ShadowKernel> Distinct(const std::vector<ShadowReport>& reports) {
    std::vector<ShadowKernel> kernels;
    for (const ShadowReport& report : reports) {
      if (std::find(kernels.begin(), kernels.end(), report.kernel) == kernels.end()) {
        kernels.push_back(report.kernel);
      }
    }
    return kernels;
  }

  std::mutex mutex_;
  std::vector<ShadowReport> reports_;
};

// For test failures.
inline void PrintTo(const ShadowReport& report, std::ostream* out) {
  const ShadowDifference& difference = report.difference;
  *out << Name(report.kernel) << " step " << report.step << " layer " << report.layer << " rows "
       << report.rows << " mismatches " << difference.mismatches << " non-finite " << difference.non_finite
       << " max " << difference.max_abs << " relative " << difference.relative;
}
inline void PrintTo(ShadowKernel kernel, std::ostream* out) { *out << Name(kernel); }

}  // namespace arborist::verifier
