#pragma once

#include <array>

#include "kernels/exact_math/exact_scalar.h"
#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {

// ExactExp of 16 lanes: the operations of ExpInline, in its order.
inline Lanes16 Exp(Lanes16 x) {
  const Lanes16 magic = Lanes16::Broadcast(kRoundMagic);
  const Lanes16 low = Lanes16::Broadcast(kExpLow);
  const Lanes16 high = Lanes16::Broadcast(kExpHigh);
  // Lanes out of range compute something harmless and are replaced below.
  const Lanes16 safe = Min(Max(x, low), high);
  const Lanes16 n = Sub(Add(Mul(safe, Lanes16::Broadcast(kLog2E)), magic), magic);
  const Lanes16 minus_n = Sub(Lanes16::Zero(), n);
  Lanes16 r = Fma(minus_n, Lanes16::Broadcast(kLn2High), safe);
  r = Fma(minus_n, Lanes16::Broadcast(kLn2Low), r);
  constexpr std::array<float, 6> kCoefficient = ExpCoefficients();
  Lanes16 p = Lanes16::Broadcast(kCoefficient[0]);
  for (int i = 1; i < 6; ++i) {
    p = Fma(p, r, Lanes16::Broadcast(kCoefficient[i]));
  }
  const Lanes16 y = Add(Fma(p, Mul(r, r), r), Lanes16::Broadcast(1.0f));
  const Lanes16 half = Sub(Fma(n, Lanes16::Broadcast(0.5f), magic), magic);
  Lanes16 result = Mul(Mul(y, Pow2(half)), Pow2(Sub(n, half)));
  result = IfLess(x, low, Lanes16::Zero(), result);
  result = IfLess(high, x, Lanes16::Broadcast(__builtin_inff()), result);
  // x + 0 is x, so a NaN comes through; every other lane compares.
  return IfLess(x, Lanes16::Broadcast(__builtin_inff()), result,
                IfLess(high, x, Lanes16::Broadcast(__builtin_inff()), x));
}

}  // namespace arborist::kernels::ARBORIST_ISA
