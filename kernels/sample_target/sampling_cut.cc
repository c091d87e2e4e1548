#include "kernels/sample_target/sampling_cut.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "kernels/sample_target/sampling_rule.h"

namespace arborist::kernels {
namespace {

// Keys in three digits of 11, 11 and 10 bits.
constexpr int kShift[] = {21, 10, 0};
constexpr uint32_t kDigitMask[] = {2047, 2047, 1023};

uint32_t Digit(float logit, int pass) { return (OrderKey(logit) >> kShift[pass]) & kDigitMask[pass]; }

struct Bin {
  uint32_t digit;
  uint64_t above;  // of the bins with larger digits
};

// The largest digit whose bin reaches `needed` together with all bins above it.
Bin FindBin(const uint64_t* histogram, uint64_t needed) {
  uint64_t above = 0;
  for (int64_t digit = kHistogramBins - 1; digit > 0; --digit) {
    if (above + histogram[digit] >= needed) {
      return {static_cast<uint32_t>(digit), above};
    }
    above += histogram[digit];
  }
  return {0, above};
}

// Keeps ids whose logit has a larger key, and the first `ties` that have this one.
void Filter(const float* logits, uint32_t key, int64_t ties, RemainingIds& remaining) {
  int64_t kept = 0;
  for (int64_t i = 0; i < remaining.count; ++i) {
    const int32_t id = remaining.ids[i];
    const uint32_t own = OrderKey(logits[id]);
    remaining.ids[kept] = id;
    kept += own > key || (own == key && ties-- > 0) ? 1 : 0;
  }
  remaining.count = kept;
}

// Keeps the shortest prefix whose measure is at least Needed(measure of all), by radix search: a histogram a
// digit, and only the ids of the decisive bin go on to the next one. Measure(id) is the same for equal
// logits.
template <typename Measure, typename Needed>
void KeepPrefix(const float* logits, const Measure& measure, const Needed& needed_of,
                RemainingIds& remaining) {
  const int32_t* ids = remaining.ids;
  int64_t left = remaining.count;
  uint64_t needed = 0;
  uint32_t key = 0;
  for (int pass = 0; pass < 3; ++pass) {
    uint64_t* histogram = remaining.histogram;
    std::fill(histogram, histogram + kHistogramBins, 0);
    for (int64_t i = 0; i < left; ++i) {
      histogram[Digit(logits[ids[i]], pass)] += measure(ids[i]);
    }
    if (pass == 0) {
      needed = needed_of(std::accumulate(histogram, histogram + kHistogramBins, uint64_t{0}));
    }
    const Bin bin = FindBin(histogram, needed);
    needed -= bin.above;
    key |= bin.digit << kShift[pass];
    int64_t kept = 0;
    for (int64_t i = 0; i < left; ++i) {
      const int32_t id = ids[i];
      remaining.work[kept] = id;
      kept += Digit(logits[id], pass) == bin.digit ? 1 : 0;
    }
    ids = remaining.work;
    left = kept;
  }
  // What is left has one key.
  int64_t ties = 0;
  for (uint64_t reached = 0; reached < needed; ++ties) {
    Check(ties < left, "the measure of all reaches what is needed");
    reached += measure(ids[ties]);
  }
  Filter(logits, key, ties, remaining);
}

}  // namespace

void KeepTopK(const float* logits, int64_t k, RemainingIds& remaining) {
  if (k >= remaining.count) {
    return;
  }
  KeepPrefix(
      logits, [](int32_t) { return uint64_t{1}; }, [k](uint64_t) { return static_cast<uint64_t>(k); },
      remaining);
}

void KeepTopP(const float* logits, const float* weight, float top_p, RemainingIds& remaining) {
  KeepPrefix(
      logits, [weight](int32_t id) { return Mass(weight[id]); },
      [top_p](uint64_t total) { return NeededMass(total, top_p); }, remaining);
}

void KeepMinP(const float* weight, float min_p, RemainingIds& remaining) {
  remaining.count = std::remove_if(remaining.ids, remaining.ids + remaining.count,
                                   [&](int32_t id) { return weight[id] < min_p; }) -
                    remaining.ids;
}

}  // namespace arborist::kernels
