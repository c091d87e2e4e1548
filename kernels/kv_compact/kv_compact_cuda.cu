#include <cuda_runtime.h>

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/kv_compact/kv_compact.h"

// Moves go along rows, so columns do not depend on one another: a block takes some columns of one plane,
// reads them for all moves into shared memory, waits for its threads, and writes. Nothing else has to be
// kept.
namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kStageUnits = 4096;  // of at most 16 bytes
constexpr int kStageBytes = kStageUnits * 16;
constexpr int kBlocksPerProcessor = 3;  // what shared memory holds on the largest
static_assert(kMaxCompactMoves <= kThreads && kMaxCompactPlanes <= kThreads);
static_assert(kMaxCompactMoves * 8 <= kStageUnits);

struct Work {
  int moves;
  int32_t from[kMaxCompactMoves];
  int32_t to[kMaxCompactMoves];
  void* plane[kMaxCompactPlanes];
  int64_t row_bytes[kMaxCompactPlanes];
  int32_t chunk_end[kThreads];  // [planes] chunks of this plane and those before it
  int32_t happening[kThreads / 32], wide[kThreads / 32], narrow[kThreads / 32];  // of each warp
};

// The widest unit in which a plane's rows can be copied: 16, 4 or 1 bytes.
__device__ int Log2UnitBytes(const void* plane, int64_t row_bytes) {
  const uint64_t both = reinterpret_cast<uintptr_t>(plane) | static_cast<uint64_t>(row_bytes);
  return both % 16 == 0 ? 4 : both % 4 == 0 ? 2 : 0;
}

__device__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
__device__ int Warp() { return static_cast<int>(threadIdx.x) / 32; }

// Sum of the first `warps` of one number a warp.
__device__ int32_t SumOfWarps(const int32_t* sum, int warps) {
  return __reduce_add_sync(0xffffffffu, Lane() < warps ? sum[Lane()] : 0);
}

__device__ int32_t ChunksOf(const void* plane, int64_t row_bytes, int log2_units) {
  const int log2_bytes = Log2UnitBytes(plane, row_bytes) + log2_units;
  return static_cast<int32_t>((row_bytes + (int64_t{1} << log2_bytes) - 1) >> log2_bytes);
}

// Lists the moves that happen, and the planes with their chunks of 2^log2_units units. Returns log2_units: as
// many neighbouring units as the stage holds for all moves, at most 256 bytes of a row.
__device__ int Plan(const KvCompactArgs& args, Work& work) {
  WaitForKernelBefore();  // a caller of the C library may have written planes and moves with a kernel
  const int t = static_cast<int>(threadIdx.x);
  const bool has_plane = t < args.plane.size;
  void* const plane = has_plane ? args.plane[t] : nullptr;
  const int64_t row_bytes = has_plane ? args.row_bytes[t] : 0;
  if (has_plane) {
    work.plane[t] = plane;
    work.row_bytes[t] = row_bytes;
  }
  // Counted for both widths, so that they need not wait for the number of moves.
  int32_t wide = ChunksOf(plane, row_bytes, 4), narrow = ChunksOf(plane, row_bytes, 3);
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int32_t wide_before = __shfl_up_sync(0xffffffffu, wide, step);
    const int32_t narrow_before = __shfl_up_sync(0xffffffffu, narrow, step);
    wide += Lane() >= step ? wide_before : 0;
    narrow += Lane() >= step ? narrow_before : 0;
  }
  if (Lane() == 31) {
    work.wide[Warp()] = wide;
    work.narrow[Warp()] = narrow;
  }
  const int32_t from = t < args.from.size ? args.from[t] : -1, to = t < args.to.size ? args.to[t] : -1;
  const bool happens = from >= 0 && from < args.slots && to >= 0 && to < args.slots;
  const uint32_t happening = __ballot_sync(0xffffffffu, happens);
  if (Lane() == 0) {
    work.happening[Warp()] = __popc(happening);
  }
  __syncthreads();
  const int before = SumOfWarps(work.happening, Warp()) + __popc(happening & ((1u << Lane()) - 1));
  const int moves = SumOfWarps(work.happening, kThreads / 32);
  if (happens) {
    work.from[before] = from;
    work.to[before] = to;
  }
  const int log2_units = moves * 16 <= kStageUnits ? 4 : 3;
  work.chunk_end[t] =
      log2_units == 4 ? wide + SumOfWarps(work.wide, Warp()) : narrow + SumOfWarps(work.narrow, Warp());
  if (t == 0) {
    work.moves = moves;
  }
  __syncthreads();
  return log2_units;
}

// The plane whose chunks hold this one.
__device__ int PlaneOf(int32_t chunk, int planes, const Work& work) {
  int plane = 0;
  for (int last = planes - 1; plane < last;) {
    const int middle = (plane + last) / 2;
    if (work.chunk_end[middle] > chunk) {
      last = middle;
    } else {
      plane = middle + 1;
    }
  }
  return plane;
}

template <typename Unit>
__device__ void CopyToStage(Unit* stage, const Unit* from) {
  if constexpr (sizeof(Unit) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<uint32_t>(__cvta_generic_to_shared(stage))),
                 "l"(from)
                 : "memory");
  } else {
    *stage = *from;
  }
}

// Units [first, first + 2^log2_units) of every moved row of a plane of `row_units` a row. A thread writes
// what it read itself; it waits for the others because its `to` may be their `from`.
template <typename Unit>
__device__ void MoveChunk(void* plane, int64_t row_units, int64_t first, int log2_units, const Work& work,
                          uint4* stage) {
  const int64_t unit = first + (threadIdx.x & ((1u << log2_units) - 1));
  auto* column = static_cast<Unit*>(plane) + unit;
  const int moves = unit < row_units ? work.moves : 0;
  const int first_move = static_cast<int>(threadIdx.x) >> log2_units, step = kThreads >> log2_units;
  // Of 16 bytes whatever the unit, so that a thread in the next chunk, of other units, meets only its own.
  uint4* mine = stage + threadIdx.x;
#pragma unroll 4
  for (int move = first_move, i = 0; move < moves; move += step, i += kThreads) {
    CopyToStage(reinterpret_cast<Unit*>(mine + i), column + work.from[move] * row_units);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
#pragma unroll 4
  for (int move = first_move, i = 0; move < moves; move += step, i += kThreads) {
    column[work.to[move] * row_units] = *reinterpret_cast<const Unit*>(mine + i);
  }
}

__global__ void __launch_bounds__(kThreads) MoveRows(KvCompactArgs args) {
  __shared__ Work work;
  extern __shared__ uint4 stage[];
  LetNextKernelStart();
  const int log2_units = Plan(args, work);
  const auto planes = static_cast<int>(args.plane.size);
  const int32_t chunks = work.moves == 0 ? 0 : work.chunk_end[planes - 1];
  for (auto chunk = static_cast<int32_t>(blockIdx.x); chunk < chunks;
       chunk += static_cast<int32_t>(gridDim.x)) {
    const int p = PlaneOf(chunk, planes, work);
    const int64_t first = int64_t{chunk - (p == 0 ? 0 : work.chunk_end[p - 1])} << log2_units;
    const int64_t row_bytes = work.row_bytes[p];
    switch (Log2UnitBytes(work.plane[p], row_bytes)) {
      case 4:
        MoveChunk<uint4>(work.plane[p], row_bytes / 16, first, log2_units, work, stage);
        break;
      case 2:
        MoveChunk<uint32_t>(work.plane[p], row_bytes / 4, first, log2_units, work, stage);
        break;
      default:
        MoveChunk<uint8_t>(work.plane[p], row_bytes, first, log2_units, work, stage);
    }
  }
}

}  // namespace

absl::Status KvCompact(const KvCompactArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvCompactShapes(args));
  if (args.from.size == 0 || args.plane.size == 0) {
    return absl::OkStatus();
  }
  int device = 0, processors = 0;
  RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "kv_compact"));
  RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "kv_compact"));
  RETURN_IF_ERROR(
      CudaStatus(cudaFuncSetAttribute(MoveRows, cudaFuncAttributeMaxDynamicSharedMemorySize, kStageBytes),
                 "kv_compact"));
  // Chunks of 8 bytes, the smallest, bound their number.
  const int64_t chunks = args.plane.size * ((args.max_row_bytes + 7) / 8);
  const auto blocks = static_cast<uint32_t>(std::min<int64_t>(chunks, processors * kBlocksPerProcessor));
  return LaunchOverlapped("kv_compact", MoveRows,
                          {.grid = dim3(blocks), .block = dim3(kThreads), .shared_bytes = kStageBytes},
                          stream.cuda_stream, args);
}

}  // namespace arborist::kernels::cuda
