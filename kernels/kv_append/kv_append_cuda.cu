#include <cuda_runtime.h>

#include "common/base/status_macros.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Copies a unit as it is.
template <typename Unit>
struct Copied {
  using Source = Unit;
  using Stored = Unit;
  static __device__ Stored Of(const Source& source) { return source; }
};

struct NarrowedOne {
  using Source = float;
  using Stored = uint16_t;
  static __device__ Stored Of(float source) { return ToBFloat16(source).bits; }
};

// Two loads and one store of 16 bytes.
struct NarrowedOct {
  struct Source {
    float4 low, high;
  };
  using Stored = uint4;
  // The GPU's rounding, but for a NaN, which keeps its bits as the oracle's does.
  static __device__ uint32_t Pair(float first, float second) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    if (first != first || second != second) {
      both = ToBFloat16(first).bits | static_cast<uint32_t>(ToBFloat16(second).bits) << 16;
    }
    return both;
  }
  static __device__ Stored Of(const Source& source) {
    return make_uint4(Pair(source.low.x, source.low.y), Pair(source.low.z, source.low.w),
                      Pair(source.high.x, source.high.y), Pair(source.high.z, source.high.w));
  }
};

// A thread a unit: as many loads in flight as there are threads are enough, and more a thread took longer.
template <typename Unit>
__global__ void __launch_bounds__(kThreads) Append(KvAppendArgs args, uint32_t row_units) {
  LetNextKernelStart();
  const int64_t first = int64_t{blockIdx.x} * kThreads;
  const int64_t first_row = first / row_units;
  const uint32_t offset = static_cast<uint32_t>(first - first_row * row_units) + threadIdx.x;
  const int64_t row = first_row + offset / row_units;
  const uint32_t unit = offset % row_units;
  WaitForKernelBefore();
  typename Unit::Source held;
  int32_t slot = -1;
  if (row < args.slot.size) {  // both loads are on their way before either is looked at
    held = reinterpret_cast<const typename Unit::Source*>(static_cast<const char*>(args.rows) +
                                                          row * args.source_stride_bytes)[unit];
    slot = args.slot[row];
  }
  if (slot >= 0 && slot < args.slots) {
    auto* stored =
        reinterpret_cast<typename Unit::Stored*>(static_cast<char*>(args.plane) + slot * args.row_bytes);
    stored[unit] = Unit::Of(held);
  }
}

// Sources of more than 16 bytes are read in pieces of 16.
template <typename Unit>
bool Fits(const KvAppendArgs& args) {
  constexpr size_t kSource = sizeof(typename Unit::Source), kStored = sizeof(typename Unit::Stored);
  constexpr size_t kPiece = kSource < 16 ? kSource : 16;
  return reinterpret_cast<uintptr_t>(args.rows) % kPiece == 0 && args.source_stride_bytes % kPiece == 0 &&
         reinterpret_cast<uintptr_t>(args.plane) % kStored == 0 && args.row_bytes % kStored == 0;
}

template <typename Unit>
absl::Status Launch(const KvAppendArgs& args, StreamView stream) {
  const int64_t row_units = args.row_bytes / static_cast<int64_t>(sizeof(typename Unit::Stored));
  const int64_t units = args.slot.size * row_units;
  if (units <= 0) {
    return absl::OkStatus();
  }
  const auto blocks = static_cast<unsigned>((units + kThreads - 1) / kThreads);
  return LaunchOverlapped("kv_append", Append<Unit>, {.grid = dim3(blocks), .block = dim3(kThreads)},
                          stream.cuda_stream, args, static_cast<uint32_t>(row_units));
}

}  // namespace

absl::Status KvAppend(const KvAppendArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvAppendShapes(args));
  if (args.narrow) {
    return Fits<NarrowedOct>(args) ? Launch<NarrowedOct>(args, stream) : Launch<NarrowedOne>(args, stream);
  }
  if (Fits<Copied<uint4>>(args)) {
    return Launch<Copied<uint4>>(args, stream);
  }
  if (Fits<Copied<uint32_t>>(args)) {
    return Launch<Copied<uint32_t>>(args, stream);
  }
  return Launch<Copied<uint8_t>>(args, stream);
}

}  // namespace arborist::kernels::cuda
