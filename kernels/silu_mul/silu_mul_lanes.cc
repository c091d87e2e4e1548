#include "kernels/silu_mul/silu_mul_lanes.h"

#include "kernels/exact_math/lanes_exp.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

Lanes16 SiluMul(Lanes16 gate, Lanes16 up) {
  const Lanes16 denominator = Add(Lanes16::Broadcast(1.0f), Exp(Sub(Lanes16::Zero(), gate)));
  return Mul(Div(gate, denominator), up);
}

}  // namespace

void SiluMulRow(const float* gate, const float* up, float* out, int64_t columns) {
  int64_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    SiluMul(Lanes16::Load(gate + c), Lanes16::Load(up + c)).Store(out + c);
  }
  if (c < columns) {
    const int64_t rest = columns - c;
    SiluMul(Lanes16::LoadPartial(gate + c, rest), Lanes16::LoadPartial(up + c, rest))
        .StorePartial(out + c, rest);
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
