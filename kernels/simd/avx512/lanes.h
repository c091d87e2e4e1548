#pragma once

#include <immintrin.h>

#include <cstdint>

namespace arborist::kernels::ARBORIST_ISA {

// 16 fp32 lanes; see kernels/simd/README.md. The three versions of this file declare the same operations.
struct Lanes16 {
  __m512 v;

  static Lanes16 Zero() { return {_mm512_setzero_ps()}; }
  static Lanes16 Broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static Lanes16 Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  // The first `count` (0..16) elements; the other lanes are +0 and their memory is not touched.
  static Lanes16 LoadPartial(const float* p, int64_t count) {
    return {_mm512_maskz_loadu_ps(Mask(count), p)};
  }
  static Lanes16 LoadBf16(const uint16_t* p) {
    return Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Lanes16 LoadPartialBf16(const uint16_t* p, int64_t count) {
    return Widen(_mm256_maskz_loadu_epi16(Mask(count), p));
  }
  static Lanes16 LoadF16(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  static Lanes16 LoadPartialF16(const uint16_t* p, int64_t count) {
    return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(Mask(count), p))};
  }
  void Store(float* p) const { _mm512_storeu_ps(p, v); }
  void StorePartial(float* p, int64_t count) const { _mm512_mask_storeu_ps(p, Mask(count), v); }

  // (l, l+8), (l, l+4), (l, l+2), (l, l+1).
  float Sum() const {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
  }
  float MaxLane() const { return _mm512_reduce_max_ps(v); }

 private:
  static __mmask16 Mask(int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
  static Lanes16 Widen(__m256i halves) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
  }
};

inline Lanes16 Add(Lanes16 a, Lanes16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes16 Sub(Lanes16 a, Lanes16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes16 Mul(Lanes16 a, Lanes16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes16 Div(Lanes16 a, Lanes16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// a * b + c, rounded once.
inline Lanes16 Fma(Lanes16 a, Lanes16 b, Lanes16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The second operand where one is NaN, as a > b ? a : b.
inline Lanes16 Max(Lanes16 a, Lanes16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes16 Min(Lanes16 a, Lanes16 b) { return {_mm512_min_ps(a.v, b.v)}; }
// a < b ? x : y (a NaN takes y).
inline Lanes16 IfLess(Lanes16 a, Lanes16 b, Lanes16 x, Lanes16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
// 2^n for lanes that hold whole numbers in [-126, 127].
inline Lanes16 Pow2(Lanes16 n) {
  return {_mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
}

// Lanes from `count` on become +0.
inline Lanes16 KeepFirst(Lanes16 a, int64_t count) {
  return {_mm512_maskz_mov_ps(static_cast<__mmask16>((1u << count) - 1u), a.v)};
}

// Lanes (l, l+8) added: the first step of Sum().
struct Half8 {
  __m256 v;
};
inline Half8 Fold(Lanes16 a) {
  return {_mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1))};
}
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

// What a tile's accumulators are made of.
using Chunk = Lanes16;
inline constexpr int kChunks = 1;
inline constexpr int kChunkLanes = 16;
inline Half8 Fold(const Chunk (&a)[kChunks]) { return Fold(a[0]); }

// Rows and outputs of a register tile that leave no accumulator in memory.
inline constexpr int kTileRows = 6;
inline constexpr int kTileOutputs = 4;

}  // namespace arborist::kernels::ARBORIST_ISA
