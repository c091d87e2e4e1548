#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/exact_math/exact_math.h"
#include "kernels/exact_math/exact_scalar.h"
#include "kernels/sample_target/block_reduce.cuh"
#include "kernels/sample_target/sample_target_cuda.h"
#include "kernels/sample_target/sampling_rule.h"

namespace arborist::kernels::cuda {

// One block cuts one row to the prefix of the order (logit, lower id) that top-k and top-p leave. Ids whose
// scaled logit lies more than kLive below the largest are left out from the start: their mass is 0, and no
// noise lifts them to the largest (whose own noise is above -3.2, against at most 23), so whether the cut
// keeps them changes nothing.
inline constexpr float kLive = 28.0f;
inline constexpr int kCutBins = kSampleBins;
inline constexpr float kBinsAUnit = 64.0f;
inline constexpr int kCutList = 2048;
inline constexpr int kCutShortList = 512;
// Bins up to here may be listed; a launch that lists puts all deeper ids into one bin. Together they are at
// most vocabulary / 10^6 of the largest id's mass, so the thresholds of usual requests lie before them.
inline constexpr int kListedBins = 14 * 64;
inline constexpr int kRestBin = kCutBins - 1;
static_assert(kLive * kBinsAUnit < kRestBin && kLive > kGumbelMax + 3.2f);

struct CutMemory {
  uint32_t count[kCutBins];
  uint64_t mass[kCutBins];
  uint64_t list[kCutList];
  uint64_t list_measure[kCutShortList];
  int32_t listed;
  int32_t bin;
  uint64_t count_before;
  uint64_t mass_before;
  BlockReduceMemory reduce;
};

struct CutRow {
  const float* logits;
  int64_t vocabulary;
  float max;
  float temperature;
  // The bins of the whole row, and the ids that are searched in its stead; null without a list.
  const SampleRowCut* listed = nullptr;

  __device__ float Scaled(float logit) const { return (logit - max) / temperature; }
  // The bin of a scaled logit: 0 for the largest; -1 when it is not live.
  __device__ int32_t Bin(float scaled) const {
    return scaled >= -kLive ? static_cast<int32_t>(-scaled * kBinsAUnit) : -1;
  }
};

// Calls visit(logit, id) for the listed ids, or for the whole row, 16 bytes at a time where alignment allows.
template <typename Visit>
__device__ void ForEachLogit(const CutRow& row, const Visit& visit) {
  if (row.listed != nullptr) {
    for (auto i = static_cast<int32_t>(threadIdx.x); i < row.listed->listed;
         i += static_cast<int32_t>(blockDim.x)) {
      visit(ValueOfRankKey(row.listed->list[i]), IdOfRankKey(row.listed->list[i]));
    }
    return;
  }
  const auto thread = static_cast<int64_t>(threadIdx.x);
  int64_t done = 0;
  if (reinterpret_cast<uintptr_t>(row.logits) % 16 == 0) {
    const int64_t quads = row.vocabulary / 4;
    const int64_t step = blockDim.x;
    int64_t quad = thread;
    for (; quad + 3 * step < quads; quad += 4 * step) {
      float4 value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[i] = reinterpret_cast<const float4*>(row.logits)[quad + i * step];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto id = static_cast<int32_t>(4 * (quad + i * step));
        visit(value[i].x, id);
        visit(value[i].y, id + 1);
        visit(value[i].z, id + 2);
        visit(value[i].w, id + 3);
      }
    }
    for (; quad < quads; quad += step) {
      const float4 value = reinterpret_cast<const float4*>(row.logits)[quad];
      const auto id = static_cast<int32_t>(4 * quad);
      visit(value.x, id);
      visit(value.y, id + 1);
      visit(value.z, id + 2);
      visit(value.w, id + 3);
    }
    done = 4 * quads;
  }
  for (int64_t id = done + thread; id < row.vocabulary; id += blockDim.x) {
    visit(row.logits[id], static_cast<int32_t>(id));
  }
}

// Histograms of `bin_of(logit, id)`, counts and masses; negative bins are left out.
template <typename BinOf>
__device__ void FillBins(CutMemory& memory, const CutRow& row, const BinOf& bin_of) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kCutBins; i += static_cast<int>(blockDim.x)) {
    memory.count[i] = 0;
    memory.mass[i] = 0;
  }
  __syncthreads();
  ForEachLogit(row, [&](float logit, int32_t id) {
    const int32_t bin = bin_of(logit, id);
    if (bin >= 0) {
      atomicAdd(&memory.count[bin], 1u);
      const uint64_t mass = Mass(ExpInline(row.Scaled(logit)));
      if (mass > 0) {
        atomicAdd(reinterpret_cast<unsigned long long*>(&memory.mass[bin]),
                  static_cast<unsigned long long>(mass));
      }
    }
  });
  __syncthreads();
}

// The bins of a whole row, from the launch that filled them.
__device__ inline void LoadBins(CutMemory& memory, const SampleRowCut& row) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kCutBins; i += static_cast<int>(blockDim.x)) {
    memory.count[i] = row.count[i];
    memory.mass[i] = row.mass[i];
  }
  __syncthreads();
}

struct BinTotals {
  uint64_t count;
  uint64_t mass;
};
__device__ inline BinTotals SumBins(CutMemory& memory) {
  BinTotals own = {0, 0};
  for (int i = static_cast<int>(threadIdx.x); i < kCutBins; i += static_cast<int>(blockDim.x)) {
    own.count += memory.count[i];
    own.mass += memory.mass[i];
  }
  return {BlockSum(memory.reduce, own.count), BlockSum(memory.reduce, own.mass)};
}

enum class Measure { kCount, kMass };

// Sets memory.bin to the first bin that reaches `needed` together with all before it, and what those hold.
__device__ inline void FindBin(CutMemory& memory, Measure measure, uint64_t needed) {
  const auto each = static_cast<int>(kCutBins / blockDim.x);
  const int first = static_cast<int>(threadIdx.x) * each;
  BinTotals own = {0, 0};
  for (int i = first; i < first + each; ++i) {
    own.count += memory.count[i];
    own.mass += memory.mass[i];
  }
  BinTotals before = {BlockSumBefore(memory.reduce, own.count), BlockSumBefore(memory.reduce, own.mass)};
  for (int i = first; i < first + each; ++i) {
    const uint64_t reached = measure == Measure::kCount ? before.count : before.mass;
    const uint64_t here = measure == Measure::kCount ? memory.count[i] : memory.mass[i];
    if (reached < needed && reached + here >= needed) {
      memory.bin = i;
      memory.count_before = before.count;
      memory.mass_before = before.mass;
    }
    before.count += memory.count[i];
    before.mass += memory.mass[i];
  }
  __syncthreads();
}

struct Threshold {
  uint64_t key;   // the RankKey of the last id kept
  uint64_t mass;  // of the ids kept in the bin
};

__device__ inline uint64_t MeasureOf(const CutRow& row, Measure measure, uint64_t key) {
  return measure == Measure::kCount ? 1 : Mass(ExpInline(row.Scaled(ValueOfRankKey(key))));
}

// As BoundInList, for lists of at most a key a thread: each adds up what reaches its own.
__device__ inline uint64_t BoundInShortList(CutMemory& memory, const CutRow& row, Measure measure,
                                            uint64_t needed) {
  const auto own = static_cast<int>(threadIdx.x);
  const uint64_t key = own < memory.listed ? memory.list[own] : 0;
  if (own < memory.listed) {
    memory.list_measure[own] = MeasureOf(row, measure, key);
  }
  __syncthreads();
  uint64_t reach = 0;
  if (own < memory.listed) {
    for (int i = 0; i < memory.listed; ++i) {
      reach += memory.list[i] >= key ? memory.list_measure[i] : 0;
    }
  }
  return BlockMax(memory.reduce, reach >= needed ? key : 0);
}

// Among the listed keys, the largest bound whose measure from it on reaches `needed`.
__device__ inline uint64_t BoundInList(CutMemory& memory, const CutRow& row, Measure measure,
                                       uint64_t needed) {
  if (memory.listed <= min(kCutShortList, static_cast<int>(blockDim.x))) {
    return BoundInShortList(memory, row, measure, needed);
  }
  uint64_t all = ~uint64_t{0};
  uint64_t any = 0;
  for (int i = static_cast<int>(threadIdx.x); i < memory.listed; i += static_cast<int>(blockDim.x)) {
    all &= memory.list[i];
    any |= memory.list[i];
  }
  all = BlockAnd(memory.reduce, all);
  any = BlockOr(memory.reduce, any);
  uint64_t bound = all;
  for (uint64_t varying = any ^ all; varying != 0;) {
    const uint64_t bit = uint64_t{1} << (63 - __clzll(static_cast<long long>(varying)));
    varying ^= bit;
    // Lower bits that all keys share stay out of the trial: a bound is compared, not matched.
    const uint64_t tried = (bound & ~(bit - 1)) | bit;
    uint64_t reach = 0;
    for (int i = static_cast<int>(threadIdx.x); i < memory.listed; i += static_cast<int>(blockDim.x)) {
      reach += memory.list[i] >= tried ? MeasureOf(row, measure, memory.list[i]) : 0;
    }
    bound |= BlockSum(memory.reduce, reach) >= needed ? bit : 0;
  }
  return bound;
}

// The threshold inside a bin of scaled logits that holds `count` ids: its best ones, until they reach
// `needed`.
__device__ inline Threshold ThresholdInBin(CutMemory& memory, const CutRow& row, Measure measure, int32_t bin,
                                           uint64_t count, uint64_t needed) {
  uint64_t low = 0;
  uint64_t high = ~uint64_t{0};
  uint64_t mass_above = 0;
  const auto inside = [&](float logit, int32_t id) {
    const uint64_t key = RankKey(logit, id);
    return key >= low && key <= high && row.Bin(row.Scaled(logit)) == bin;
  };
  if (count > kCutList) {
    uint64_t all = ~uint64_t{0};
    uint64_t any = 0;
    ForEachLogit(row, [&](float logit, int32_t id) {
      if (inside(logit, id)) {
        all &= RankKey(logit, id);
        any |= RankKey(logit, id);
      }
    });
    low = BlockAnd(memory.reduce, all);
    high = BlockOr(memory.reduce, any);
  }
  // Too many for the list: the range of keys is cut into 2048 parts until the decisive one fits.
  while (count > kCutList) {
    const uint64_t range = high - low;
    const int shift = max(0, 64 - __clzll(static_cast<long long>(range)) - 11);
    FillBins(memory, row, [&](float logit, int32_t id) {
      return inside(logit, id) ? static_cast<int32_t>((high - RankKey(logit, id)) >> shift) : -1;
    });
    FindBin(memory, measure, needed);
    const auto part = static_cast<uint64_t>(memory.bin);
    needed -= measure == Measure::kCount ? memory.count_before : memory.mass_before;
    mass_above += memory.mass_before;
    count = memory.count[part];
    const uint64_t top = high - (part << shift);
    const uint64_t width = (uint64_t{1} << shift) - 1;
    low = top - low > width ? top - width : low;
    high = top;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    memory.listed = 0;
  }
  __syncthreads();
  ForEachLogit(row, [&](float logit, int32_t id) {
    if (inside(logit, id)) {
      memory.list[atomicAdd(&memory.listed, 1)] = RankKey(logit, id);
    }
  });
  __syncthreads();
  const uint64_t bound = BoundInList(memory, row, measure, needed);
  uint64_t mass = 0;
  for (int i = static_cast<int>(threadIdx.x); i < memory.listed; i += static_cast<int>(blockDim.x)) {
    mass += memory.list[i] >= bound ? Mass(ExpInline(row.Scaled(ValueOfRankKey(memory.list[i])))) : 0;
  }
  return {bound, mass_above + BlockSum(memory.reduce, mass)};
}

// Live ids with a RankKey from the result on are what top-k and top-p leave.
__device__ inline uint64_t CutOfRow(CutMemory& memory, const CutRow& row, const SamplingParams& params) {
  const auto live_bins = [&] {
    if (row.listed != nullptr) {
      LoadBins(memory, *row.listed);
      return;
    }
    FillBins(memory, row, [&](float logit, int32_t) { return row.Bin(row.Scaled(logit)); });
  };
  live_bins();
  BinTotals live = SumBins(memory);
  uint64_t cut = 0;
  if (params.top_k > 0 && static_cast<uint64_t>(params.top_k) < live.count) {
    const auto k = static_cast<uint64_t>(params.top_k);
    FindBin(memory, Measure::kCount, k);
    const int32_t bin = memory.bin;
    const uint64_t count = memory.count[bin];
    const uint64_t mass_before = memory.mass_before;
    const Threshold threshold =
        ThresholdInBin(memory, row, Measure::kCount, bin, count, k - memory.count_before);
    cut = threshold.key;
    live.mass = mass_before + threshold.mass;
    if (params.top_p < 1 && count > kCutList) {
      live_bins();  // the search in the bin used their memory
    }
  }
  if (params.top_p < 1) {
    const uint64_t needed = NeededMass(live.mass, params.top_p);
    FindBin(memory, Measure::kMass, needed);
    const int32_t bin = memory.bin;
    cut =
        ThresholdInBin(memory, row, Measure::kMass, bin, memory.count[bin], needed - memory.mass_before).key;
  }
  return cut;
}

// The last bin whose ids must be listed, from the bins of the whole row: that of the top-k threshold, whose
// own ids say how much mass top-k leaves to top-p; else that of top-p, else the last one that min-p may keep.
// -1 when the bins up to there hold too many ids to list, or lie too deep.
__device__ inline int32_t LastBin(CutMemory& memory, const SamplingParams& params) {
  int32_t last = kRestBin;
  const BinTotals live = SumBins(memory);
  if (params.top_k > 0 && static_cast<uint64_t>(params.top_k) < live.count) {
    FindBin(memory, Measure::kCount, static_cast<uint64_t>(params.top_k));
    last = memory.bin;
  } else if (params.top_p < 1) {
    FindBin(memory, Measure::kMass, NeededMass(live.mass, params.top_p));
    last = memory.bin;
  } else if (params.min_p > 0) {
    // One bin more than the logarithm says is far more than it is off.
    last = static_cast<int32_t>(min(-__logf(params.min_p), kLive) * kBinsAUnit) + 1;
  }
  if (last >= kListedBins) {
    return -1;
  }
  uint64_t own = 0;
  for (int i = static_cast<int>(threadIdx.x); i <= last; i += static_cast<int>(blockDim.x)) {
    own += memory.count[i];
  }
  return BlockSum(memory.reduce, own) <= kSampleList ? last : -1;
}

}  // namespace arborist::kernels::cuda
