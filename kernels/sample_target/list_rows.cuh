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

// Calls work(row, part) for each part of each truncated row that falls to this block. Whether rows are
// truncated is looked up for many at once: where none is, a launch costs little more than its start.
template <typename Work>
__device__ void ForEachPart(const SampleLaunch& launch, const Work& work) {
  __shared__ bool truncated[kReadThreads];
  const int64_t rows = launch.args.logits.rows;
  for (int64_t base = 0; base < rows; base += kReadThreads) {
    const int64_t own = base + static_cast<int64_t>(threadIdx.x);
    truncated[threadIdx.x] =
        own < rows && IsTruncated(ParamsOf(launch.args, own), launch.args.logits.columns);
    __syncthreads();
    const int64_t items = min(rows - base, int64_t{kReadThreads}) * launch.parts;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
      if (truncated[item / launch.parts]) {
        work(base + item / launch.parts, static_cast<int32_t>(item % launch.parts));
      }
    }
    __syncthreads();
  }
}

// The bins of a part. The last block to finish a row says how far its list goes.
__device__ inline void FillPartBins(const SampleLaunch& launch, int64_t at, int32_t part, PartMemory& memory,
                                    BlockReduceMemory& reduce, bool& is_last) {
  const SamplingParams* params = ParamsOf(launch.args, at);
  const RowPeak peak = PeakOfChunks(reduce, launch.results + at * launch.chunks, launch.chunks);
  if (!peak.finite) {
    return;
  }
  const CutRow row = RowOf(launch, *params, at, peak.max);
  __syncthreads();
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

static __global__ void __launch_bounds__(kReadThreads) FillRowBins(SampleLaunch launch) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ BlockReduceMemory reduce;
  __shared__ bool is_last;
  PartMemory& memory = *reinterpret_cast<PartMemory*>(shared);
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

static __global__ void __launch_bounds__(kReadThreads) ListRows(SampleLaunch launch) {
  __shared__ BlockReduceMemory reduce;
  ForEachPart(launch, [&](int64_t at, int32_t part) { ListPart(launch, at, part, reduce); });
}

}  // namespace arborist::kernels::cuda
