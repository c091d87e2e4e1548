#pragma once

#include <immintrin.h>

#include <cstdint>

namespace arborist::kernels::ARBORIST_ISA {

// 16 fp32 lanes; see kernels/simd/README.md. The three versions of this file declare the same operations.
struct Lanes16 {
  __m256 low;   // lanes 0..7
  __m256 high;  // lanes 8..15

  static Lanes16 Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Lanes16 Broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Lanes16 Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  // The first `count` (0..16) elements; the other lanes are +0 and their memory is not touched.
  static Lanes16 LoadPartial(const float* p, int64_t count) {
    return {_mm256_maskload_ps(p, Mask(count)), _mm256_maskload_ps(p + 8, Mask(count - 8))};
  }
  static Lanes16 LoadBf16(const uint16_t* p) {
    return {Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Lanes16 LoadPartialBf16(const uint16_t* p, int64_t count) {
    uint16_t full[16];
    Copy(p, count, full);
    return LoadBf16(full);
  }
  static Lanes16 LoadF16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Lanes16 LoadPartialF16(const uint16_t* p, int64_t count) {
    uint16_t full[16];
    Copy(p, count, full);
    return LoadF16(full);
  }
  void Store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
  void StorePartial(float* p, int64_t count) const {
    _mm256_maskstore_ps(p, Mask(count), low);
    _mm256_maskstore_ps(p + 8, Mask(count - 8), high);
  }

  // (l, l+8), (l, l+4), (l, l+2), (l, l+1).
  float Sum() const {
    const __m256 a = _mm256_add_ps(low, high);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
  }
  float MaxLane() const {
    const __m256 a = _mm256_max_ps(low, high);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_shuffle_ps(c, c, 1)));
  }

 private:
  static __m256i Mask(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m256 Widen(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static void Copy(const uint16_t* p, int64_t count, uint16_t* full) {
    for (int64_t i = 0; i < 16; ++i) {
      full[i] = i < count ? p[i] : uint16_t{0};
    }
  }
};

inline Lanes16 Add(Lanes16 a, Lanes16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Lanes16 Sub(Lanes16 a, Lanes16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Lanes16 Mul(Lanes16 a, Lanes16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes16 Div(Lanes16 a, Lanes16 b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
// a * b + c, rounded once.
inline Lanes16 Fma(Lanes16 a, Lanes16 b, Lanes16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
// The second operand where one is NaN, as a > b ? a : b.
inline Lanes16 Max(Lanes16 a, Lanes16 b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Lanes16 Min(Lanes16 a, Lanes16 b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
// a < b ? x : y (a NaN takes y).
inline Lanes16 IfLess(Lanes16 a, Lanes16 b, Lanes16 x, Lanes16 y) {
  return {_mm256_blendv_ps(y.low, x.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.high, x.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
// 2^n for lanes that hold whole numbers in [-126, 127].
inline Lanes16 Pow2(Lanes16 n) {
  const __m256i bias = _mm256_set1_epi32(127);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.low), bias), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.high), bias), 23))};
}

// Lanes from `count` on become +0.
inline Lanes16 KeepFirst(Lanes16 a, int64_t count) {
  alignas(64) static constexpr int32_t kMask[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                    -1, -1, -1, -1, -1, -1, -1, 0};
  const auto mask = [&](int at) {
    return _mm256_castsi256_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMask + (16 - count) + at)));
  };
  return {_mm256_and_ps(a.low, mask(0)), _mm256_and_ps(a.high, mask(8))};
}

// Lanes (l, l+8) added: the first step of Sum().
struct Half8 {
  __m256 v;
};
inline Half8 Fold(Lanes16 a) { return {_mm256_add_ps(a.low, a.high)}; }
// out[i] = the rest of Sum() of h[i]: (l, l+4), (l, l+2), (l, l+1), for eight at once.
inline void Sum8(const Half8 (&h)[8], float* out) {
  // Blends are cheaper than shuffles: each step adds [a.first | b.second] to [a.second | b.first]. Pairs (0,
  // 4), (1, 5), (2, 6), (3, 7) end in the two 128-bit halves of the result in order.
  const auto step4 = [](__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
  };
  const auto step2 = [](__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_blend_ps(a, b, 0xcc), _mm256_shuffle_ps(a, b, 0x4e));
  };
  const __m256 ab = step2(step4(h[0].v, h[4].v), step4(h[1].v, h[5].v));
  const __m256 cd = step2(step4(h[2].v, h[6].v), step4(h[3].v, h[7].v));
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xdd)));
}
// out[i] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])) of p + 8 * i, for eight at once.
inline void JoinPairs8(const float* p, float* out) {
  const auto pairs = [](__m256 a, __m256 b) {
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
  };
  const auto row = [p](int i) { return _mm256_loadu_ps(p + 8 * i); };
  const __m256 a = pairs(pairs(row(0), row(1)), pairs(row(2), row(3)));
  const __m256 b = pairs(pairs(row(4), row(5)), pairs(row(6), row(7)));
  _mm256_storeu_ps(out,
                   _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)));
}

// What a tile's accumulators are made of: half of the 16 lanes, so that more of them stay in registers.
struct Chunk {
  __m256 v;

  static Chunk Zero() { return {_mm256_setzero_ps()}; }
  static Chunk Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  // The first `count` elements (none if negative, at most 8); the other lanes are +0.
  static Chunk LoadPartial(const float* p, int64_t count) {
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return {_mm256_maskload_ps(p, mask)};
  }
};
inline Chunk Fma(Chunk a, Chunk b, Chunk c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline constexpr int kChunks = 2;
inline constexpr int kChunkLanes = 8;
inline Half8 Fold(const Chunk (&a)[kChunks]) { return {_mm256_add_ps(a[0].v, a[1].v)}; }

// Rows and outputs of a register tile that leave no accumulator in memory.
inline constexpr int kTileRows = 3;
inline constexpr int kTileOutputs = 4;

}  // namespace arborist::kernels::ARBORIST_ISA
