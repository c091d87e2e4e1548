#include "kernels/bench/machine_lanes.h"

#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {

float FusedMultiplyAdds(int64_t rounds) {
  // Enough independent chains to hide the latency, few enough to stay in registers.
  constexpr int kChains = alignof(Lanes16) == 64 ? 12 : 6;
  Lanes16 chain[kChains];
  for (int i = 0; i < kChains; ++i) {
    chain[i] = Lanes16::Broadcast(static_cast<float>(i));
  }
  const Lanes16 half = Lanes16::Broadcast(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      chain[i] = Fma(chain[i], half, half);
    }
    if constexpr (kChains == 6) {
#pragma GCC unroll 6
      for (int i = 0; i < kChains; ++i) {
        chain[i] = Fma(chain[i], half, half);
      }
    }
  }
  Lanes16 sum = chain[0];
  for (int i = 1; i < kChains; ++i) {
    sum = Add(sum, chain[i]);
  }
  return sum.Sum();
}

}  // namespace arborist::kernels::ARBORIST_ISA
