#pragma once

#include <cstdint>

#include "common/base/math.h"

namespace arborist::kernels {

// The pieces that attention kernels share: a block of at most 64 keys against a tile of queries, and the
// merge of two partial results. Results are a function of one query and its keys in order; tiles, ISA and
// threads change nothing.
inline constexpr int kAttentionBlockKeys = 64;
// Queries that read a key together.
inline constexpr int kAttentionTileQueries = 32;

// Partial softmax results of a tile: out = acc / l once every key is in.
struct AttentionPart {
  float* max = nullptr;    // [queries] largest score
  float* sum = nullptr;    // [queries] of exp(score - max)
  float* acc = nullptr;    // [queries, acc_stride] sum of exp(score - max) * value
  int64_t acc_stride = 0;  // RoundUp(columns, 16): the columns past the end hold anything
};

struct AttentionBlockArgs {
  const float* query = nullptr;  // queries at stride query_stride
  int64_t query_stride = 0;
  int queries = 0;                      // 1..kAttentionTileQueries
  const float* const* key = nullptr;    // [keys] rows of `width`
  const float* const* value = nullptr;  // [keys] rows of `columns`
  int keys = 0;                         // 1..64
  int64_t width = 0;
  int64_t columns = 0;
  float scale = 0;
  float* score = nullptr;  // scratch [kAttentionTileQueries, 64]
};

// score = scale * dot(query, key) (linear.h); part = (m = max score, l = sum of p = exp(score - m) in 16
// lanes, acc[c] = sum in key order of fma(p, value[c], acc[c]) from 0).
void AttendBlock(const AttentionBlockArgs& args, const AttentionPart& part);

// into = merge(into, part): m = max of both, a = exp(into.m - m), b = exp(part.m - m), l = fma(into.l, a,
// part.l * b), acc = fma(into.acc, a, part.acc * b).
void MergeParts(const AttentionPart& part, int queries, int64_t columns, const AttentionPart& into);

// out[q, c] = acc[q, c] / l[q].
void FinishPart(const AttentionPart& part, int queries, int64_t columns, float* out, int64_t out_stride);

constexpr int64_t AttentionPartFloats(int64_t columns) {
  return kAttentionTileQueries * (2 + RoundUp(columns, 16));
}

// Lays a part out in `memory` of AttentionPartFloats(columns) floats.
inline AttentionPart MakeAttentionPart(float* memory, int64_t columns) {
  return {.max = memory,
          .sum = memory + kAttentionTileQueries,
          .acc = memory + 2 * kAttentionTileQueries,
          .acc_stride = RoundUp(columns, 16)};
}

}  // namespace arborist::kernels
