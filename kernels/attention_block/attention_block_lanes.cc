#include "kernels/attention_block/attention_block_lanes.h"

#include "kernels/exact_math/lanes_exp.h"
#include "lanes.h"

namespace arborist::kernels::ARBORIST_ISA {
namespace {

// Accumulators fill the registers: 32 of 16 lanes, or 16 of 8.
constexpr bool kWide = alignof(Lanes16) == 64;
constexpr int kQueryTile = kWide ? 4 : 2;
constexpr int kColumnTile = kWide ? 4 : 2;  // of 16 columns
constexpr int kScoreStride = kAttentionBlockKeys;

// part[q * stride + k] = the folded lanes of dot(query q, key k).
template <int queries, int keys>
void DotTile(const float* query, int64_t query_stride, const float* const* key, int64_t width, Half8* part,
             int stride) {
  Lanes16 sum[queries][keys];
#pragma GCC unroll 4
  for (int q = 0; q < queries; ++q) {
#pragma GCC unroll 8
    for (int k = 0; k < keys; ++k) {
      sum[q][k] = Lanes16::Zero();
    }
  }
  int64_t c = 0;
  for (; c + 16 <= width; c += 16) {
    Lanes16 row[keys];
#pragma GCC unroll 8
    for (int k = 0; k < keys; ++k) {
      row[k] = Lanes16::Load(key[k] + c);
    }
#pragma GCC unroll 4
    for (int q = 0; q < queries; ++q) {
      const Lanes16 x = Lanes16::Load(query + q * query_stride + c);
#pragma GCC unroll 8
      for (int k = 0; k < keys; ++k) {
        sum[q][k] = Fma(x, row[k], sum[q][k]);
      }
    }
  }
  if (c < width) {
#pragma GCC unroll 4
    for (int q = 0; q < queries; ++q) {
      const Lanes16 x = Lanes16::LoadPartial(query + q * query_stride + c, width - c);
#pragma GCC unroll 8
      for (int k = 0; k < keys; ++k) {
        sum[q][k] = Fma(x, Lanes16::LoadPartial(key[k] + c, width - c), sum[q][k]);
      }
    }
  }
#pragma GCC unroll 4
  for (int q = 0; q < queries; ++q) {
#pragma GCC unroll 8
    for (int k = 0; k < keys; ++k) {
      part[q * stride + k] = Fold(sum[q][k]);
    }
  }
}

// Scores of `queries` queries, so many keys at a time that their sums are joined by eights.
template <int queries>
void ScoreQueries(const AttentionBlockArgs& args, int q) {
  constexpr int kKeys = queries == 1 ? 8 : 4;
  constexpr int kAtOnce = kWide ? kKeys : kKeys / 2;
  const float* query = args.query + q * args.query_stride;
  float* score = args.score + q * kScoreStride;
  for (int k = 0; k < args.keys; k += kKeys) {
    // Past the end stands the last key again; its scores are overwritten or cut off.
    const float* key[kKeys];
    for (int i = 0; i < kKeys; ++i) {
      key[i] = args.key[k + i < args.keys ? k + i : args.keys - 1];
    }
    Half8 part[queries * kKeys / 8][8];
    for (int first = 0; first < kKeys; first += kAtOnce) {
      DotTile<queries, kAtOnce>(query, args.query_stride, key + first, args.width, part[0] + first, kKeys);
    }
    float dot[queries * kKeys];
#pragma GCC unroll 2
    for (int i = 0; i < queries * kKeys / 8; ++i) {
      Sum8(part[i], dot + i * 8);
    }
    for (int i = 0; i < queries; ++i) {
      for (int j = 0; j < kKeys; ++j) {
        score[i * kScoreStride + k + j] = args.scale * dot[i * kKeys + j];
      }
    }
  }
}

void Scores(const AttentionBlockArgs& args) {
  int q = 0;
  for (; q + kQueryTile <= args.queries; q += kQueryTile) {
    ScoreQueries<kQueryTile>(args, q);
  }
  for (; q < args.queries; ++q) {
    ScoreQueries<1>(args, q);
  }
}

// Scores become exp(score - max), in place.
void Softmax(float* score, int keys, float* max_out, float* sum_out) {
  int padded = keys;
  for (; padded % 16 != 0; ++padded) {
    score[padded] = -__builtin_inff();
  }
  Lanes16 max = Lanes16::Load(score);
  for (int k = 16; k < padded; k += 16) {
    max = Max(Lanes16::Load(score + k), max);
  }
  *max_out = max.MaxLane();
  const Lanes16 largest = Lanes16::Broadcast(*max_out);
  Lanes16 sum = Lanes16::Zero();
  for (int k = 0; k < padded; k += 16) {
    const Lanes16 p = Exp(Sub(Lanes16::Load(score + k), largest));
    p.Store(score + k);
    sum = Add(sum, p);
  }
  *sum_out = sum.Sum();
}

template <int queries, int chunks, bool partial>
void AccumulateTile(const AttentionBlockArgs& args, int q, int64_t column, const AttentionPart& part) {
  const float* weight = args.score + q * kScoreStride;
  Lanes16 acc[queries][chunks];
#pragma GCC unroll 4
  for (int i = 0; i < queries; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < chunks; ++n) {
      acc[i][n] = Lanes16::Zero();
    }
  }
  for (int k = 0; k < args.keys; ++k) {
    const float* value = args.value[k] + column;
    Lanes16 v[chunks];
#pragma GCC unroll 4
    for (int n = 0; n < chunks; ++n) {
      v[n] = partial ? Lanes16::LoadPartial(value, args.columns - column) : Lanes16::Load(value + n * 16);
    }
#pragma GCC unroll 4
    for (int i = 0; i < queries; ++i) {
      const Lanes16 p = Lanes16::Broadcast(weight[i * kScoreStride + k]);
#pragma GCC unroll 4
      for (int n = 0; n < chunks; ++n) {
        acc[i][n] = Fma(p, v[n], acc[i][n]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < queries; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < chunks; ++n) {
      acc[i][n].Store(part.acc + (q + i) * part.acc_stride + column + n * 16);
    }
  }
}

template <int queries>
void AccumulateQueries(const AttentionBlockArgs& args, int q, const AttentionPart& part) {
  int64_t column = 0;
  for (; column + kColumnTile * 16 <= args.columns; column += kColumnTile * 16) {
    AccumulateTile<queries, kColumnTile, false>(args, q, column, part);
  }
  for (; column + 32 <= args.columns; column += 32) {
    AccumulateTile<queries, 2, false>(args, q, column, part);
  }
  for (; column + 16 <= args.columns; column += 16) {
    AccumulateTile<queries, 1, false>(args, q, column, part);
  }
  if (column < args.columns) {
    AccumulateTile<queries, 1, true>(args, q, column, part);
  }
}

}  // namespace

void AttendBlock(const AttentionBlockArgs& args, const AttentionPart& part) {
  Scores(args);
  for (int q = 0; q < args.queries; ++q) {
    Softmax(args.score + q * kScoreStride, args.keys, part.max + q, part.sum + q);
  }
  int q = 0;
  for (; q + kQueryTile <= args.queries; q += kQueryTile) {
    AccumulateQueries<kQueryTile>(args, q, part);
  }
  for (; q < args.queries; ++q) {
    AccumulateQueries<1>(args, q, part);
  }
}

void MergeParts(const AttentionPart& part, int queries, int64_t columns, const AttentionPart& into) {
  for (int first = 0; first < queries; first += 16) {
    const int count = queries - first < 16 ? queries - first : 16;
    const Lanes16 max_a = Lanes16::LoadPartial(into.max + first, count);
    const Lanes16 max_b = Lanes16::LoadPartial(part.max + first, count);
    const Lanes16 max = Max(max_a, max_b);
    const Lanes16 a = Exp(Sub(max_a, max));
    const Lanes16 b = Exp(Sub(max_b, max));
    const Lanes16 sum_a = Lanes16::LoadPartial(into.sum + first, count);
    const Lanes16 sum_b = Lanes16::LoadPartial(part.sum + first, count);
    Fma(sum_a, a, Mul(sum_b, b)).StorePartial(into.sum + first, count);
    max.StorePartial(into.max + first, count);
    float factor_a[16];
    float factor_b[16];
    a.Store(factor_a);
    b.Store(factor_b);
    for (int q = 0; q < count; ++q) {
      float* acc_a = into.acc + (first + q) * into.acc_stride;
      const float* acc_b = part.acc + (first + q) * part.acc_stride;
      const Lanes16 scale_a = Lanes16::Broadcast(factor_a[q]);
      const Lanes16 scale_b = Lanes16::Broadcast(factor_b[q]);
      for (int64_t c = 0; c < columns; c += 16) {
        Fma(Lanes16::Load(acc_a + c), scale_a, Mul(Lanes16::Load(acc_b + c), scale_b)).Store(acc_a + c);
      }
    }
  }
}

void FinishPart(const AttentionPart& part, int queries, int64_t columns, float* out, int64_t out_stride) {
  for (int q = 0; q < queries; ++q) {
    const Lanes16 sum = Lanes16::Broadcast(part.sum[q]);
    const float* acc = part.acc + q * part.acc_stride;
    for (int64_t c = 0; c < columns; c += 16) {
      const Lanes16 value = Div(Lanes16::Load(acc + c), sum);
      if (c + 16 <= columns) {
        value.Store(out + q * out_stride + c);
      } else {
        value.StorePartial(out + q * out_stride + c, columns - c);
      }
    }
  }
}

}  // namespace arborist::kernels::ARBORIST_ISA
