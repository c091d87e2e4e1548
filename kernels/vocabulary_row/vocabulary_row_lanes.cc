#include "kernels/vocabulary_row/vocabulary_row_lanes.h"

#include "kernels/exact_math/lanes_exp.h"
#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {

float MaxOfRow(const float* x, int64_t count, bool* finite) {
  const Lanes16 zero = Lanes16::Zero();
  Lanes16 max = Lanes16::Broadcast(x[0]);
  Lanes16 probe = zero;  // 0 * x is NaN for an infinity or a NaN, and stays so
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const Lanes16 value = Lanes16::Load(x + i);
    max = Max(value, max);
    probe = Fma(value, zero, probe);
  }
  float largest = max.MaxLane();
  float tail = 0;
  for (; i < count; ++i) {
    largest = x[i] > largest ? x[i] : largest;
    tail += x[i] * 0.0f;
  }
  *finite = probe.Sum() + tail == 0.0f;
  return largest;
}

float SumExpOfRow(const float* x, float shift, float factor, int64_t count) {
  const Lanes16 by = Lanes16::Broadcast(factor);
  const Lanes16 minus = Lanes16::Broadcast(shift);
  Lanes16 sum = Lanes16::Zero();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    sum = Add(sum, Exp(Mul(Sub(Lanes16::Load(x + i), minus), by)));
  }
  if (i < count) {
    float last[16];
    Exp(Mul(Sub(Lanes16::LoadPartial(x + i, count - i), minus), by)).Store(last);
    sum = Add(sum, Lanes16::LoadPartial(last, count - i));
  }
  return sum.Sum();
}

void ScaleRow(const float* x, float shift, float divisor, int64_t count, float* out) {
  const Lanes16 minus = Lanes16::Broadcast(shift);
  const Lanes16 by = Lanes16::Broadcast(divisor);
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Div(Sub(Lanes16::Load(x + i), minus), by).Store(out + i);
  }
  if (i < count) {
    Div(Sub(Lanes16::LoadPartial(x + i, count - i), minus), by).StorePartial(out + i, count - i);
  }
}

void AddRows(const float* x, const float* y, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Add(Lanes16::Load(x + i), Lanes16::Load(y + i)).Store(out + i);
  }
  if (i < count) {
    Add(Lanes16::LoadPartial(x + i, count - i), Lanes16::LoadPartial(y + i, count - i))
        .StorePartial(out + i, count - i);
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
