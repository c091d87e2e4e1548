#include "common/base/status_macros.h"
#include "kernels/kv_append/kv_append.h"
#include "kernels/row_items/row_items.cuh"

namespace arborist::kernels::cuda {
namespace {

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

struct NarrowedQuad {
  using Source = float4;
  using Stored = ushort4;
  static __device__ Stored Of(const float4& source) {
    return make_ushort4(ToBFloat16(source.x).bits, ToBFloat16(source.y).bits, ToBFloat16(source.z).bits,
                        ToBFloat16(source.w).bits);
  }
};

template <typename Unit>
struct AppendUnits {
  struct Held {
    typename Unit::Source source;
    int32_t slot;
  };
  const char* rows;
  int64_t source_stride_bytes;
  const int32_t* slot;
  char* plane;
  int64_t slots;
  int64_t row_bytes;

  __device__ Held Load(int64_t row, uint32_t unit) const {
    return {reinterpret_cast<const typename Unit::Source*>(rows + row * source_stride_bytes)[unit],
            slot[row]};
  }
  __device__ void Store(int64_t, uint32_t unit, const Held& held) const {
    if (held.slot >= 0 && held.slot < slots) {
      reinterpret_cast<typename Unit::Stored*>(plane + held.slot * row_bytes)[unit] = Unit::Of(held.source);
    }
  }
};

template <typename Unit>
bool Fits(const KvAppendArgs& args) {
  constexpr size_t kSource = sizeof(typename Unit::Source), kStored = sizeof(typename Unit::Stored);
  return reinterpret_cast<uintptr_t>(args.rows) % kSource == 0 && args.source_stride_bytes % kSource == 0 &&
         reinterpret_cast<uintptr_t>(args.plane) % kStored == 0 && args.row_bytes % kStored == 0;
}

template <typename Unit>
absl::Status Append(const KvAppendArgs& args, StreamView stream) {
  const AppendUnits<Unit> body{static_cast<const char*>(args.rows),
                               args.source_stride_bytes,
                               args.slot.data,
                               static_cast<char*>(args.plane),
                               args.slots,
                               args.row_bytes};
  return ForRowItems<3>("kv_append", args.slot.size,
                        args.row_bytes / static_cast<int64_t>(sizeof(typename Unit::Stored)), body, stream);
}

}  // namespace

absl::Status KvAppend(const KvAppendArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateKvAppendShapes(args));
  if (args.narrow) {
    return Fits<NarrowedQuad>(args) ? Append<NarrowedQuad>(args, stream) : Append<NarrowedOne>(args, stream);
  }
  if (Fits<Copied<uint4>>(args)) {
    return Append<Copied<uint4>>(args, stream);
  }
  if (Fits<Copied<uint32_t>>(args)) {
    return Append<Copied<uint32_t>>(args, stream);
  }
  return Append<Copied<uint8_t>>(args, stream);
}

}  // namespace arborist::kernels::cuda
