#include "kernels/sample_target/sampling_cut.h"

#include <algorithm>

#include "common/base/check.h"
#include "kernels/sample_target/sampling_rule.h"

namespace arborist::kernels {
namespace {

// Keys in three digits of 11, 11 and 10 bits.
constexpr int kShift[] = {21, 10, 0};
constexpr uint32_t kDigitMask[] = {2047, 2047, 1023};

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

// Radix search for the shortest prefix whose measure is >= needed (1 <= needed <= the measure of all).
// Measure(id) >= 0 is the same for equal logits, except that it may be 0 for the later of them (`within`).
template <typename Measure>
SamplingCut FindCut(const float* logits, int64_t count, uint64_t needed, const Measure& measure,
                    const CutScratch& scratch) {
  uint64_t* histogram = scratch.histogram;
  std::fill(histogram, histogram + kHistogramBins, 0);
  for (int64_t v = 0; v < count; ++v) {
    histogram[OrderKey(logits[v]) >> kShift[0]] += measure(v);
  }
  Bin bin = FindBin(histogram, needed);
  uint32_t key = bin.digit << kShift[0];
  int64_t left = 0;
  for (int64_t v = 0; v < count; ++v) {
    scratch.ids[left] = static_cast<int32_t>(v);
    left += OrderKey(logits[v]) >> kShift[0] == bin.digit ? 1 : 0;
  }
  for (int pass = 1; pass < 3; ++pass) {
    needed -= bin.above;
    std::fill(histogram, histogram + kHistogramBins, 0);
    for (int64_t i = 0; i < left; ++i) {
      histogram[(OrderKey(logits[scratch.ids[i]]) >> kShift[pass]) & kDigitMask[pass]] +=
          measure(scratch.ids[i]);
    }
    bin = FindBin(histogram, needed);
    key |= bin.digit << kShift[pass];
    int64_t kept = 0;
    for (int64_t i = 0; i < left; ++i) {
      const int32_t id = scratch.ids[i];
      scratch.ids[kept] = id;
      kept += ((OrderKey(logits[id]) >> kShift[pass]) & kDigitMask[pass]) == bin.digit ? 1 : 0;
    }
    left = kept;
  }
  needed -= bin.above;
  // What is left has one key, ids ascending.
  int64_t ties = 0;
  for (uint64_t reached = 0; reached < needed; ++ties) {
    Check(ties < left, "the measure of all reaches what is needed");
    reached += measure(scratch.ids[ties]);
  }
  return {.key = key, .ties = ties};
}

}  // namespace

SamplingCut CutToCount(const float* logits, int64_t count, int64_t k, const CutScratch& scratch) {
  return FindCut(
      logits, count, static_cast<uint64_t>(k), [](int64_t) { return uint64_t{1}; }, scratch);
}

SamplingCut CutToMass(const float* logits, const float* weight, int64_t count, float top_p,
                      const SamplingCut& within, const CutScratch& scratch) {
  // The first id past the ties that `within` keeps: later ids with that key have no mass.
  int64_t end_of_ties = count;
  int64_t ties = within.ties;
  uint64_t total = 0;
  for (int64_t v = 0; v < count; ++v) {
    const uint32_t key = OrderKey(logits[v]);
    if (key == within.key && ties-- == 0) {
      end_of_ties = v;
    }
    total += key > within.key || (key == within.key && v < end_of_ties) ? Mass(weight[v]) : 0;
  }
  const auto measure = [&](int64_t v) -> uint64_t {
    const uint32_t key = OrderKey(logits[v]);
    return key > within.key || (key == within.key && v < end_of_ties) ? Mass(weight[v]) : 0;
  };
  return FindCut(logits, count, NeededMass(total, top_p), measure, scratch);
}

}  // namespace arborist::kernels
