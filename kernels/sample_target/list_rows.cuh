#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/sample_target/sample_launch.cuh"

namespace arborist::kernels::cuda {

// A mass in three parts of at most 14 bits, which 32-bit sums over a part of a row hold.
static_assert(kSampleMostPart <= int64_t{1} << 18);
struct PartBins {
  uint32_t count[kListedBins];
  uint32_t mass[3][kListedBins];
};

union PartMemory {
  PartBins bins;
  CutMemory cut;
};

// Calls visit(logit, id) for the part's ids that this block's threads read. Every thread makes the same
// number of calls; ids beyond the row come as -1.
template <typename Visit>
__device__ inline void ForEachOfPart(const SampleLaunch& launch, const CutRow& row, int32_t part,
                                     const Visit& visit) {
  const auto vocabulary = static_cast<int32_t>(row.vocabulary);
  const int32_t begin = part * launch.part_ids;
  const int32_t end = min(begin + launch.part_ids, vocabulary);
#pragma unroll 1
  for (int32_t first = begin; first < end; first += 8 * kReadThreads) {
    float logit[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t id = first + i * kReadThreads + static_cast<int32_t>(threadIdx.x);
      logit[i] = id < end ? row.logits[id] : MinusInfinity();
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int32_t id = first + i * kReadThreads + static_cast<int32_t>(threadIdx.x);
      visit(logit[i], id < end ? id : -1);
    }
  }
}

// Calls work(row, part) for each part of each truncated row that falls to this block, when the launch before
// has ended. Whether rows are truncated is looked up before, for many at once: where none is, a launch costs
// little more than its start.
template <typename Work>
__device__ void ForEachPart(const SampleLaunch& launch, const Work& work) {
  __shared__ bool truncated[kReadThreads];
  const auto rows = static_cast<int32_t>(launch.args.logits.rows);
  for (int32_t base = 0; base < rows; base += kReadThreads) {
    const int32_t own = base + static_cast<int32_t>(threadIdx.x);
    const SamplingParams* params = own < rows ? ParamsOf(launch.args, own) : nullptr;
    truncated[threadIdx.x] = false;
    if (params != nullptr) {
      const SamplingParams looked_up = LoadPastL1(params);
      truncated[threadIdx.x] = IsTruncated(&looked_up, launch.args.logits.columns);
    }
    __syncthreads();
    if (base == 0) {
      WaitForKernelBefore();
    }
    const int32_t items = min(rows - base, kReadThreads) * launch.parts;
    for (auto item = static_cast<int32_t>(blockIdx.x); item < items;
         item += static_cast<int32_t>(gridDim.x)) {
      if (truncated[item / launch.parts]) {
        work(base + item / launch.parts, item % launch.parts);
      }
    }
    __syncthreads();
  }
}

// The bins of a part, all that lies deeper than the listed ones in one. The last block to finish a row says
// how far its list goes.
__device__ inline void FillPartBins(const SampleLaunch& launch, int64_t at, int32_t part, PartMemory& memory,
                                    BlockReduceMemory& reduce, bool& is_last) {
  const SamplingParams* params = ParamsOf(launch.args, at);
  const RowPeak peak = PeakOfChunks(reduce, launch.results + at * launch.chunks, launch.chunks);
  if (!peak.finite) {
    return;
  }
  const CutRow row = RowOf(launch, *params, at, peak.max);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kListedBins; i += kReadThreads) {
    memory.bins.count[i] = 0;
    for (int j = 0; j < 3; ++j) {
      memory.bins.mass[j][i] = 0;
    }
  }
  __syncthreads();
  BinTotals rest = {0, 0};
  ForEachOfPart(launch, row, part, [&](float logit, int32_t id) {
    const float scaled = row.Scaled(logit);
    const int32_t bin = id < 0 ? -1 : row.Bin(scaled);
    if (bin < 0) {
      return;
    }
    const uint64_t mass = Mass(ExpInline(scaled));
    if (bin >= kListedBins) {
      ++rest.count;
      rest.mass += mass;
      return;
    }
    atomicAdd(&memory.bins.count[bin], 1u);
    const uint32_t parts[3] = {static_cast<uint32_t>(mass) & 0x3fffu,
                               static_cast<uint32_t>(mass >> 14) & 0x1fffu,
                               static_cast<uint32_t>(mass >> 27)};
    for (int j = 0; j < 3; ++j) {
      if (parts[j] != 0) {
        atomicAdd(&memory.bins.mass[j][bin], parts[j]);
      }
    }
  });
  rest = {BlockSum(reduce, rest.count), BlockSum(reduce, rest.mass)};
  __syncthreads();
  SampleRowCut* cut = launch.cuts + at;
  const auto add = [&](int bin, uint32_t count, uint64_t mass) {
    atomicAdd(&cut->count[bin], count);
    atomicAdd(reinterpret_cast<unsigned long long*>(&cut->mass[bin]), static_cast<unsigned long long>(mass));
  };
  for (int i = static_cast<int>(threadIdx.x); i < kListedBins; i += kReadThreads) {
    if (memory.bins.count[i] != 0) {
      uint64_t mass = 0;
      for (int j = 0; j < 3; ++j) {
        mass += uint64_t{memory.bins.mass[j][i]} << (j == 0 ? 0 : j == 1 ? 14 : 27);
      }
      add(i, memory.bins.count[i], mass);
    }
  }
  if (threadIdx.x == 0 && rest.count > 0) {
    add(kRestBin, static_cast<uint32_t>(rest.count), rest.mass);
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

static __global__ void __launch_bounds__(kReadThreads) FillRowBins(SampleLaunch launch) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ BlockReduceMemory reduce;
  __shared__ bool is_last;
  PartMemory& memory = *reinterpret_cast<PartMemory*>(shared);
  LetNextKernelStart();
  ForEachPart(launch,
              [&](int64_t at, int32_t part) { FillPartBins(launch, at, part, memory, reduce, is_last); });
}

// The ids of a part up to the row's last bin go into the row's list, in any order.
__device__ inline void ListPart(const SampleLaunch& launch, int64_t at, int32_t part,
                                BlockReduceMemory& reduce) {
  const SamplingParams* params = ParamsOf(launch.args, at);
  const RowPeak peak = PeakOfChunks(reduce, launch.results + at * launch.chunks, launch.chunks);
  SampleRowCut* cut = launch.cuts + at;
  if (!peak.finite || cut->last_bin < 0) {
    return;
  }
  const CutRow row = RowOf(launch, *params, at, peak.max);
  const int32_t last_bin = cut->last_bin;
  // Most ids lie so deep that a product tells, with room for what the reciprocal is off.
  const float reciprocal = 1.0f / row.temperature;
  const float deepest = -1.001f * (static_cast<float>(last_bin) + 2.0f) / kBinsAUnit;
  ForEachOfPart(launch, row, part, [&](float logit, int32_t id) {
    bool listed = id >= 0 && !((logit - row.max) * reciprocal < deepest);
    if (listed) {
      const int32_t bin = row.Bin(row.Scaled(logit));
      listed = bin >= 0 && bin <= last_bin;
    }
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

static __global__ void __launch_bounds__(kReadThreads) ListRows(SampleLaunch launch) {
  __shared__ BlockReduceMemory reduce;
  LetNextKernelStart();
  ForEachPart(launch, [&](int64_t at, int32_t part) { ListPart(launch, at, part, reduce); });
}

}  // namespace arborist::kernels::cuda
