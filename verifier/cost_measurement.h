#pragma once

#include <span>

#include "absl/status/status.h"
#include "verifier/cost_curve.h"
#include "verifier/kv_cache.h"
#include "verifier/step_runner.h"

namespace arborist::verifier {

// Times steps of the curve's sizes, smallest first, each behind a short prefix; the median of a few. Stops
// after `most_seconds` or where pages or sequences are too few, so larger sizes may stay unmeasured. All
// pages are free before and after.
absl::Status MeasureStepCosts(const StepCapacity& capacity, int max_context, double most_seconds,
                              StepRunner& runner, KvCache& cache, CostCurve& curve);

}  // namespace arborist::verifier
