#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/tensor/dtype.h"

namespace arborist::kernels::ARBORIST_ISA {

// 16 fp32 lanes; see kernels/simd/README.md. The three versions of this file declare the same operations.
struct Lanes16 {
  float v[16];

  static Lanes16 Zero() { return Lanes16{}; }
  static Lanes16 Broadcast(float x) {
    return Make([&](int) { return x; });
  }
  static Lanes16 Load(const float* p) {
    return Make([&](int i) { return p[i]; });
  }
  // The first `count` (0..16) elements; the other lanes are +0 and their memory is not touched.
  static Lanes16 LoadPartial(const float* p, int64_t count) {
    return Make([&](int i) { return i < count ? p[i] : 0.0f; });
  }
  static Lanes16 LoadBf16(const uint16_t* p) { return LoadPartialBf16(p, 16); }
  static Lanes16 LoadPartialBf16(const uint16_t* p, int64_t count) {
    return Make([&](int i) { return i < count ? ToFloat(BFloat16{p[i]}) : 0.0f; });
  }
  static Lanes16 LoadF16(const uint16_t* p) { return LoadPartialF16(p, 16); }
  static Lanes16 LoadPartialF16(const uint16_t* p, int64_t count) {
    return Make([&](int i) { return i < count ? ToFloat(Float16{p[i]}) : 0.0f; });
  }
  void Store(float* p) const { std::memcpy(p, v, sizeof(v)); }
  void StorePartial(float* p, int64_t count) const {
    std::memcpy(p, v, static_cast<size_t>(count) * sizeof(float));
  }

  // (l, l+8), (l, l+4), (l, l+2), (l, l+1).
  float Sum() const {
    float joined[8];
    for (int i = 0; i < 8; ++i) {
      joined[i] = v[i] + v[i + 8];
    }
    for (int width = 4; width >= 1; width /= 2) {
      for (int i = 0; i < width; ++i) {
        joined[i] += joined[i + width];
      }
    }
    return joined[0];
  }
  float MaxLane() const {
    float largest = v[0];
    for (const float x : v) {
      largest = x > largest ? x : largest;
    }
    return largest;
  }

  template <typename Lane>
  static Lanes16 Make(const Lane& lane) {
    Lanes16 made;
    for (int i = 0; i < 16; ++i) {
      made.v[i] = lane(i);
    }
    return made;
  }
};

inline Lanes16 Add(const Lanes16& a, const Lanes16& b) {
  return Lanes16::Make([&](int i) { return a.v[i] + b.v[i]; });
}
inline Lanes16 Sub(const Lanes16& a, const Lanes16& b) {
  return Lanes16::Make([&](int i) { return a.v[i] - b.v[i]; });
}
inline Lanes16 Mul(const Lanes16& a, const Lanes16& b) {
  return Lanes16::Make([&](int i) { return a.v[i] * b.v[i]; });
}
inline Lanes16 Div(const Lanes16& a, const Lanes16& b) {
  return Lanes16::Make([&](int i) { return a.v[i] / b.v[i]; });
}
// a * b + c, rounded once.
inline Lanes16 Fma(const Lanes16& a, const Lanes16& b, const Lanes16& c) {
  return Lanes16::Make([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
// The second operand where one is NaN, as a > b ? a : b.
inline Lanes16 Max(const Lanes16& a, const Lanes16& b) {
  return Lanes16::Make([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Lanes16 Min(const Lanes16& a, const Lanes16& b) {
  return Lanes16::Make([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
// a < b ? x : y (a NaN takes y).
inline Lanes16 IfLess(const Lanes16& a, const Lanes16& b, const Lanes16& x, const Lanes16& y) {
  return Lanes16::Make([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
}
// 2^n for lanes that hold whole numbers in [-126, 127].
inline Lanes16 Pow2(const Lanes16& n) {
  return Lanes16::Make([&](int i) {
    return std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23);
  });
}

// Lanes from `count` on become +0.
inline Lanes16 KeepFirst(const Lanes16& a, int64_t count) {
  return Lanes16::Make([&](int i) { return i < count ? a.v[i] : 0.0f; });
}

// Lanes (l, l+8) added: the first step of Sum().
struct Half8 {
  float v[8];
};
inline Half8 Fold(const Lanes16& a) {
  Half8 half;
  for (int i = 0; i < 8; ++i) {
    half.v[i] = a.v[i] + a.v[i + 8];
  }
  return half;
}
// out[i] = the rest of Sum() of h[i]: (l, l+4), (l, l+2), (l, l+1), for eight at once.
inline void Sum8(const Half8 (&h)[8], float* out) {
  for (int i = 0; i < 8; ++i) {
    const float* v = h[i].v;
    out[i] = ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
  }
}

// out[i] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])) of p + 8 * i, for eight at once.
inline void JoinPairs8(const float* p, float* out) {
  for (int i = 0; i < 8; ++i) {
    const float* v = p + 8 * i;
    out[i] = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
}

// What a tile's accumulators are made of.
using Chunk = Lanes16;
inline constexpr int kChunks = 1;
inline constexpr int kChunkLanes = 16;
inline Half8 Fold(const Chunk (&a)[kChunks]) { return Fold(a[0]); }

// Rows and outputs of a register tile that leave no accumulator in memory.
inline constexpr int kTileRows = 1;
inline constexpr int kTileOutputs = 1;

}  // namespace arborist::kernels::ARBORIST_ISA
