#include "common/base/status_macros.h"
#include "kernels/rope/rope.h"
#include "kernels/row_items/row_items.cuh"

namespace arborist::kernels::cuda {
namespace {

// One pair, with the operations of the contract.
__device__ void Rotate(float& a, float& b, float cosine, float sine) {
  const float first = fmaf(a, cosine, -(b * sine));
  b = fmaf(b, cosine, a * sine);
  a = first;
}

// Pairs (2i, 2i+1), two of them at a time: a quad of the vector.
struct InterleavedPairs {
  static constexpr int kPairs = 2;
  using Angles = float2;
  struct Values {
    float4 quad;
  };
  static __device__ Values Load(const float* x, int64_t, uint32_t i) {
    return {reinterpret_cast<const float4*>(x)[i]};
  }
  static __device__ void Turn(Values& v, const float2& cosine, const float2& sine) {
    Rotate(v.quad.x, v.quad.y, cosine.x, sine.x);
    Rotate(v.quad.z, v.quad.w, cosine.y, sine.y);
  }
  static __device__ void Store(float* x, int64_t, uint32_t i, const Values& v) {
    reinterpret_cast<float4*>(x)[i] = v.quad;
  }
};

// Pairs (i, i + half), four of them at a time: a quad of either half.
struct HalfSplitPairs {
  static constexpr int kPairs = 4;
  using Angles = float4;
  struct Values {
    float4 a, b;
  };
  static __device__ Values Load(const float* x, int64_t half, uint32_t i) {
    return {reinterpret_cast<const float4*>(x)[i], reinterpret_cast<const float4*>(x + half)[i]};
  }
  static __device__ void Turn(Values& v, const float4& cosine, const float4& sine) {
    Rotate(v.a.x, v.b.x, cosine.x, sine.x);
    Rotate(v.a.y, v.b.y, cosine.y, sine.y);
    Rotate(v.a.z, v.b.z, cosine.z, sine.z);
    Rotate(v.a.w, v.b.w, cosine.w, sine.w);
  }
  static __device__ void Store(float* x, int64_t half, uint32_t i, const Values& v) {
    reinterpret_cast<float4*>(x)[i] = v.a;
    reinterpret_cast<float4*>(x + half)[i] = v.b;
  }
};

// One pair at a time, for vectors that do not lie at the boundaries of quads.
template <RopePairing kPairing>
struct OnePair {
  static constexpr int kPairs = 1;
  using Angles = float;
  struct Values {
    float a, b;
  };
  static __device__ int64_t First(uint32_t i) { return kPairing == RopePairing::kInterleaved ? 2 * i : i; }
  static __device__ int64_t Distance(int64_t half) {
    return kPairing == RopePairing::kInterleaved ? 1 : half;
  }
  static __device__ Values Load(const float* x, int64_t half, uint32_t i) {
    return {x[First(i)], x[First(i) + Distance(half)]};
  }
  static __device__ void Turn(Values& v, float cosine, float sine) { Rotate(v.a, v.b, cosine, sine); }
  static __device__ void Store(float* x, int64_t half, uint32_t i, const Values& v) {
    x[First(i)] = v.a;
    x[First(i) + Distance(half)] = v.b;
  }
};

// An item is a place in the vector and kHeads heads that share its angles.
template <typename Pairs, int kHeads>
struct RotateHeads {
  struct Held {
    typename Pairs::Angles cosine, sine;
    typename Pairs::Values head[kHeads];
    bool valid;
  };
  RopeArgs args;
  uint32_t places;  // in a vector

  __device__ float* Vector(int64_t row, uint32_t item, int i) const {
    return args.x + row * args.row_stride + (int64_t{item / places} * kHeads + i) * args.head_stride;
  }
  __device__ const float* Source(int64_t row, uint32_t item, int i) const {
    return args.from == nullptr ? Vector(row, item, i)
                                : args.from + row * args.from_row_stride +
                                      (int64_t{item / places} * kHeads + i) * args.from_head_stride;
  }
  __device__ bool Exists(uint32_t item, int i) const { return item / places * kHeads + i < args.heads; }

  __device__ Held Load(int64_t row, uint32_t item) const {
    const uint32_t place = item % places;
    const int64_t position = args.position[row];
    Held held;
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      if (Exists(item, i)) {
        held.head[i] = Pairs::Load(Source(row, item, i), args.cosine.columns, place);
      }
    }
    held.valid = position >= 0 && position < args.cosine.rows;
    if (held.valid) {
      held.cosine = reinterpret_cast<const typename Pairs::Angles*>(args.cosine.row(position))[place];
      held.sine = reinterpret_cast<const typename Pairs::Angles*>(args.sine.row(position))[place];
    }
    return held;
  }
  __device__ void Store(int64_t row, uint32_t item, Held& held) const {
    if (!held.valid && args.from == nullptr) {
      return;
    }
#pragma unroll
    for (int i = 0; i < kHeads; ++i) {
      if (Exists(item, i)) {
        if (held.valid) {
          Pairs::Turn(held.head[i], held.cosine, held.sine);
        }
        Pairs::Store(Vector(row, item, i), args.cosine.columns, item % places, held.head[i]);
      }
    }
  }
};

template <typename Pairs>
absl::Status Launch(const RopeArgs& args, StreamView stream) {
  const int64_t places = args.cosine.columns / Pairs::kPairs;
  const auto body_places = static_cast<uint32_t>(places);
  if (args.heads >= 4) {
    return ForRowItems<1>("rope", args.position.size, (args.heads + 3) / 4 * places,
                          RotateHeads<Pairs, 4>{args, body_places}, stream);
  }
  return ForRowItems<4>("rope", args.position.size, args.heads * places,
                        RotateHeads<Pairs, 1>{args, body_places}, stream);
}

// Whether every vector (its halves too, if `half_too`) and every row of angles lies at quad boundaries.
template <typename Angles>
bool AnglesAlign(const View2<const float>& table) {
  constexpr int64_t kFloats = sizeof(Angles) / sizeof(float);
  return reinterpret_cast<uintptr_t>(table.data) % sizeof(Angles) == 0 && table.row_stride % kFloats == 0 &&
         table.columns % kFloats == 0;
}
template <typename Pairs>
bool Aligns(const RopeArgs& args) {
  return AnglesAlign<typename Pairs::Angles>(args.cosine) && AnglesAlign<typename Pairs::Angles>(args.sine) &&
         reinterpret_cast<uintptr_t>(args.x) % sizeof(float4) == 0 && args.row_stride % 4 == 0 &&
         (args.heads == 1 || (args.head_stride % 4 == 0 && args.from_head_stride % 4 == 0)) &&
         reinterpret_cast<uintptr_t>(args.from) % sizeof(float4) == 0 && args.from_row_stride % 4 == 0;
}

}  // namespace

absl::Status Rope(const RopeArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateRopeShapes(args));
  if (args.pairing == RopePairing::kInterleaved) {
    return Aligns<InterleavedPairs>(args) ? Launch<InterleavedPairs>(args, stream)
                                          : Launch<OnePair<RopePairing::kInterleaved>>(args, stream);
  }
  return Aligns<HalfSplitPairs>(args) ? Launch<HalfSplitPairs>(args, stream)
                                      : Launch<OnePair<RopePairing::kHalfSplit>>(args, stream);
}

}  // namespace arborist::kernels::cuda
