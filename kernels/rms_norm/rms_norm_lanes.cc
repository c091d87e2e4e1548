#include "kernels/rms_norm/rms_norm_lanes.h"

#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {

void RmsNormRow(const float* x, const float* weight, float* out, int64_t columns, float epsilon) {
  Lanes16 squares = Lanes16::Zero();
  int64_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    const Lanes16 v = Lanes16::Load(x + c);
    squares = Fma(v, v, squares);
  }
  if (c < columns) {
    const Lanes16 v = Lanes16::LoadPartial(x + c, columns - c);
    squares = Fma(v, v, squares);
  }
  const float mean = squares.Sum() / static_cast<float>(columns);
  const Lanes16 inverse = Lanes16::Broadcast(1.0f / __builtin_sqrtf(mean + epsilon));
  for (c = 0; c + 16 <= columns; c += 16) {
    Mul(Mul(Lanes16::Load(x + c), inverse), Lanes16::Load(weight + c)).Store(out + c);
  }
  if (c < columns) {
    const int64_t rest = columns - c;
    Mul(Mul(Lanes16::LoadPartial(x + c, rest), inverse), Lanes16::LoadPartial(weight + c, rest))
        .StorePartial(out + c, rest);
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
