#include "kernels/exact_math/exact_lanes.h"

#include "kernels/exact_math/exact_scalar.h"
#include "kernels/exact_math/lanes_exp.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

// Counters a pass: 64 words, enough for the compiler to fill vectors in every step below.
constexpr int kCounters = 16;

// Gumbel noise of ids 4 * first_counter .. + 64: loops over fixed arrays that the compiler turns into
// vectors. The operations are GumbelOfWord's.
void GumbelTile(uint64_t seed, uint32_t sample_index, int32_t position, uint32_t first_counter, float* out) {
  uint32_t word[4][kCounters];
  for (int i = 0; i < kCounters; ++i) {
    word[0][i] = first_counter + static_cast<uint32_t>(i);
    word[1][i] = static_cast<uint32_t>(position);
    word[2][i] = sample_index;
    word[3][i] = 0;
  }
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kCounters; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53u} * word[0][i];
      const uint64_t product1 = uint64_t{0xCD9E8D57u} * word[2][i];
      word[0][i] = static_cast<uint32_t>(product1 >> 32) ^ word[1][i] ^ key0;
      word[1][i] = static_cast<uint32_t>(product1);
      word[2][i] = static_cast<uint32_t>(product0 >> 32) ^ word[3][i] ^ key1;
      word[3][i] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  uint32_t flat[4 * kCounters];
  for (int i = 0; i < kCounters; ++i) {
    for (int w = 0; w < 4; ++w) {
      flat[4 * i + w] = word[w][i];
    }
  }
  for (int i = 0; i < 4 * kCounters; ++i) {
    out[i] = GumbelOfWord(flat[i]);
  }
}

}  // namespace

void GumbelRowLanes(uint64_t seed, uint32_t sample_index, int32_t position, int32_t first_v, int64_t count,
                    float* out) {
  constexpr int kTile = 4 * kCounters;
  int64_t done = 0;
  const auto first_counter = static_cast<uint32_t>(first_v) / 4;
  for (; done + kTile <= count; done += kTile) {
    GumbelTile(seed, sample_index, position, first_counter + static_cast<uint32_t>(done / 4), out + done);
  }
  if (done < count) {
    float tail[kTile];
    GumbelTile(seed, sample_index, position, first_counter + static_cast<uint32_t>(done / 4), tail);
    for (int64_t i = done; i < count; ++i) {
      out[i] = tail[i - done];
    }
  }
}

void ExpRowLanes(const float* x, float shift, int64_t count, float* out) {
  const Lanes16 minus = Lanes16::Broadcast(shift);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Exp(Sub(Lanes16::Load(x + i), minus)).Store(out + i);
  }
  if (i < count) {
    Exp(Sub(Lanes16::LoadPartial(x + i, count - i), minus)).StorePartial(out + i, count - i);
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
