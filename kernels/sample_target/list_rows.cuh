#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/sample_target/sample_launch.cuh"

namespace arborist::kernels::cuda {

// A mass in three parts that 32-bit sums over a part of a row hold.
struct PartBins {
  uint32_t count[kSampleBins];
  uint32_t mass[3][kSampleBins];
};

union PartMemory {
  PartBins bins;
  CutMemory cut;
};

// Calls visit(logit, id) for the part's ids that this block's threads read. Every thread makes the same
// number of calls; ids beyond the row come as -1.
template <typename Visit>
__device__ inline void ForEachOfPart(const CutRow& row, int32_t part, const Visit& visit) {
  constexpr int kEach = static_cast<int>(kSamplePart / kReadThreads);
  const int64_t first = part * kSamplePart + static_cast<int64_t>(threadIdx.x);
#pragma unroll 1
  for (int begin = 0; begin < kEach; begin += 8) {
    float logit[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t id = first + (begin + i) * kReadThreads;
      logit[i] = id < row.vocabulary ? row.logits[id] : MinusInfinity();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t id = first + (begin + i) * kReadThreads;
      visit(logit[i], id < row.vocabulary ? static_cast<int32_t>(id) : -1);
    }
  }
}

// One block a part of a truncated row: its bins. The last one to finish a row says how far its list goes.
static __global__ void __launch_bounds__(kReadThreads) FillRowBins(SampleLaunch launch) {
  extern __shared__ __align__(16) unsigned char shared[];
  PartMemory& memory = *reinterpret_cast<PartMemory*>(shared);
  __shared__ BlockReduceMemory reduce;
  __shared__ bool is_last;
  const int64_t at = blockIdx.x / static_cast<unsigned>(launch.parts);
  const auto part = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(launch.parts));
  const SamplingParams* params = ParamsOf(launch.args, at);
  if (!IsTruncated(params, launch.args.logits.columns)) {
    return;
  }
  const RowPeak peak = PeakOfChunks(reduce, launch.results + at * launch.chunks, launch.chunks);
  if (!peak.finite) {
    return;
  }
  const CutRow row = RowOf(launch, *params, at, peak.max);
  for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kReadThreads) {
    memory.bins.count[i] = 0;
    for (int j = 0; j < 3; ++j) {
      memory.bins.mass[j][i] = 0;
    }
  }
  __syncthreads();
  ForEachOfPart(row, part, [&](float logit, int32_t id) {
    const float scaled = row.Scaled(logit);
    const int32_t bin = id < 0 ? -1 : row.Bin(scaled);
    if (bin < 0) {
      return;
    }
    atomicAdd(&memory.bins.count[bin], 1u);
    const uint64_t mass = Mass(ExpInline(scaled));
    const uint32_t parts[3] = {static_cast<uint32_t>(mass) & 0x3fffu,
                               static_cast<uint32_t>(mass >> 14) & 0x1fffu,
                               static_cast<uint32_t>(mass >> 27)};
    for (int j = 0; j < 3; ++j) {
      if (parts[j] != 0) {
        atomicAdd(&memory.bins.mass[j][bin], parts[j]);
      }
    }
  });
  __syncthreads();
  SampleRowCut* cut = launch.cuts + at;
  for (int i = static_cast<int>(threadIdx.x); i < kSampleBins; i += kReadThreads) {
    if (memory.bins.count[i] == 0) {
      continue;
    }
    uint64_t mass = 0;
    for (int j = 0; j < 3; ++j) {
      mass += uint64_t{memory.bins.mass[j][i]} << (j == 0 ? 0 : j == 1 ? 14 : 27);
    }
    atomicAdd(&cut->count[i], memory.bins.count[i]);
    atomicAdd(reinterpret_cast<unsigned long long*>(&cut->mass[i]), static_cast<unsigned long long>(mass));
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(&cut->parts_done, 1u) + 1 == static_cast<unsigned>(launch.parts);
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  __threadfence();
  LoadBins(memory.cut, *cut);
  const int32_t last = LastBin(memory.cut, *params);
  if (threadIdx.x == 0) {
    cut->last_bin = last;
  }
}

// One block a part of a truncated row: its ids up to the last bin go into the row's list, in any order.
static __global__ void __launch_bounds__(kReadThreads) ListRow(SampleLaunch launch) {
  __shared__ BlockReduceMemory reduce;
  const int64_t at = blockIdx.x / static_cast<unsigned>(launch.parts);
  const auto part = static_cast<int32_t>(blockIdx.x % static_cast<unsigned>(launch.parts));
  const SamplingParams* params = ParamsOf(launch.args, at);
  if (!IsTruncated(params, launch.args.logits.columns)) {
    return;
  }
  const RowPeak peak = PeakOfChunks(reduce, launch.results + at * launch.chunks, launch.chunks);
  SampleRowCut* cut = launch.cuts + at;
  if (!peak.finite || cut->last_bin < 0) {
    return;
  }
  const CutRow row = RowOf(launch, *params, at, peak.max);
  const int32_t last_bin = cut->last_bin;
  ForEachOfPart(row, part, [&](float logit, int32_t id) {
    const int32_t bin = id < 0 ? -1 : row.Bin(row.Scaled(logit));
    const bool listed = bin >= 0 && bin <= last_bin;
    const unsigned others = __ballot_sync(kAllLanes, listed);
    if (others == 0) {
      return;
    }
    int32_t base = 0;
    if (threadIdx.x % 32 == 0) {
      base = atomicAdd(&cut->listed, __popc(others));
    }
    base = __shfl_sync(kAllLanes, base, 0);
    if (listed) {
      cut->list[base + __popc(others & ((1u << threadIdx.x % 32) - 1))] = RankKey(logit, id);
    }
  });
}

}  // namespace arborist::kernels::cuda
