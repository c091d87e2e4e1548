#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace arborist::kernels {

// Our own exp, log and counter-based noise: fixed sequences of IEEE operations (fma written out, contraction
// off), so the CPU and CUDA give the same bits. Accuracy is a few ulp and stated beside each test; equality
// is the point.

// e^x in fp32. Below -87.3 the result is +0 (no subnormals), above 88.7 it is +inf; NaN stays NaN.
float ExactExp(float x);

// Natural logarithm of a positive normal float. log(+inf) = +inf, log(0) = -inf, negative or NaN = NaN.
float ExactLog(float x);

// Philox4x32-10 (Salmon et al., 2011): counter and key to four words.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Standard Gumbel noise of vocabulary id v at the 0-based index `position` of prompt + output:
//   word = Philox(counter {v / 4, position, sample_index, 0}, key {seed low, seed high})[v % 4],
//   u = min((word + 0.5) / 2^32, 1 - 2^-24), e = -log1p(-u) (an exponential variate, exact where it is
//   small), gumbel = -log(e).
// Finite for every word: within [-3.2, 23].
float Gumbel(uint64_t seed, uint32_t sample_index, int32_t position, int32_t v);

// Upper bound of Gumbel over all words.
inline constexpr float kGumbelMax = 23.0f;

// out[i] = Gumbel(seed, sample_index, position, first_v + i): the same bits, several words a Philox call,
// vectorised. first_v is a multiple of 4.
void GumbelRow(uint64_t seed, uint32_t sample_index, int32_t position, int32_t first_v, int64_t count,
               float* out);

// out[i] = ExactExp(x[i] - shift), vectorised: the same bits. out may be x.
void ExpRow(const float* x, float shift, int64_t count, float* out);

}  // namespace arborist::kernels
