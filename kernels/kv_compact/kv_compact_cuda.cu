#include <cuda_runtime.h>

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kv_compact/kv_compact.h"

// Moves go along rows, so columns do not depend on one another: a block takes some columns of one plane,
// reads them for all moves into registers, waits for its threads, and writes. Nothing else has to be kept.
namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeld = 8;  // units a thread has in registers
constexpr int kBlocksPerProcessor = 4;
static_assert(kMaxCompactMoves <= 2 * kThreads && kMaxCompactPlanes <= kThreads);

struct Move {
  int32_t from;
  int32_t to;
};

struct Shared {
  Move move[kMaxCompactMoves];
  int moves;
  int32_t chunk_end[kThreads];  // [planes] chunks of this plane and those before it
  int32_t warp_sum[kThreads / 32];
};

// The widest unit in which a plane's rows can be copied.
__device__ int UnitBytes(const void* plane, int64_t row_bytes) {
  const uint64_t both = reinterpret_cast<uintptr_t>(plane) | static_cast<uint64_t>(row_bytes);
  return both % 16 == 0 ? 16 : both % 4 == 0 ? 4 : 1;
}

// The moves that happen, in any order.
__device__ void ListMoves(const KvCompactArgs& args, Shared& shared) {
  if (threadIdx.x == 0) {
    shared.moves = 0;
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < args.from.size; i += kThreads) {
    const Move move = {args.from[i], args.to[i]};
    if (move.from >= 0 && move.from < args.slots && move.to >= 0 && move.to < args.slots) {
      shared.move[atomicAdd(&shared.moves, 1)] = move;
    }
  }
  __syncthreads();
}

// chunk_end, a thread for each plane.
__device__ void ListChunks(const KvCompactArgs& args, int log2_units, Shared& shared) {
  int32_t end = 0;
  if (threadIdx.x < args.plane.size) {
    const int64_t row_bytes = args.row_bytes[threadIdx.x];
    const int64_t chunk_bytes = int64_t{UnitBytes(args.plane[threadIdx.x], row_bytes)} << log2_units;
    end = static_cast<int32_t>((row_bytes + chunk_bytes - 1) / chunk_bytes);
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int32_t before = __shfl_up_sync(0xffffffffu, end, step);
    end += lane >= step ? before : 0;
  }
  if (lane == 31) {
    shared.warp_sum[warp] = end;
  }
  __syncthreads();
  for (int i = 0; i < warp; ++i) {
    end += shared.warp_sum[i];
  }
  shared.chunk_end[threadIdx.x] = end;
  __syncthreads();
}

// Units [first, first + 2^log2_units) of every moved row of a plane of `row_units` a row.
template <typename Unit>
__device__ void MoveChunk(void* plane, int64_t row_units, int64_t first, int log2_units,
                          const Shared& shared) {
  auto* units = static_cast<Unit*>(plane) + first;
  const int64_t rest = row_units - first;
  Unit held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * kThreads;
    const int move = item >> log2_units, unit = item & ((1 << log2_units) - 1);
    if (move < shared.moves && unit < rest) {
      held[i] = units[shared.move[move].from * row_units + unit];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int item = static_cast<int>(threadIdx.x) + i * kThreads;
    const int move = item >> log2_units, unit = item & ((1 << log2_units) - 1);
    if (move < shared.moves && unit < rest) {
      units[shared.move[move].to * row_units + unit] = held[i];
    }
  }
}

__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor) MoveRows(KvCompactArgs args) {
  __shared__ Shared shared;
  ListMoves(args, shared);
  if (shared.moves == 0) {
    return;
  }
  // As many neighbouring units as the block can hold for all moves, at most 128 bytes.
  const int log2_units = shared.moves * 8 <= kThreads * kHeld ? 3 : 2;
  ListChunks(args, log2_units, shared);
  const auto planes = static_cast<int>(args.plane.size);
  for (int32_t chunk = static_cast<int32_t>(blockIdx.x); chunk < shared.chunk_end[planes - 1];
       chunk += static_cast<int32_t>(gridDim.x)) {
    int p = 0;  // the first plane that ends behind the chunk
    for (int after = planes - 1; p < after;) {
      const int middle = (p + after) / 2;
      if (shared.chunk_end[middle] > chunk) {
        after = middle;
      } else {
        p = middle + 1;
      }
    }
    const int64_t first = int64_t{chunk - (p == 0 ? 0 : shared.chunk_end[p - 1])} << log2_units;
    void* plane = args.plane[p];
    const int64_t row_bytes = args.row_bytes[p];
    switch (UnitBytes(plane, row_bytes)) {
      case 16:
        MoveChunk<uint4>(plane, row_bytes / 16, first, log2_units, shared);
        break;
      case 4:
        MoveChunk<uint32_t>(plane, row_bytes / 4, first, log2_units, shared);
        break;
      default:
        MoveChunk<uint8_t>(plane, row_bytes, first, log2_units, shared);
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
  // Chunks of 4 bytes, the smallest, bound their number.
  const int64_t chunks = args.plane.size * ((args.max_row_bytes + 3) / 4);
  const auto blocks = static_cast<uint32_t>(std::min<int64_t>(chunks, processors * kBlocksPerProcessor));
  MoveRows<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream.cuda_stream)>>>(args);
  return LaunchStatus("kv_compact");
}

}  // namespace arborist::kernels::cuda
