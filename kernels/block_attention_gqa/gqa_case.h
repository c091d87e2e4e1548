#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/block_attention_gqa/block_attention_gqa.h"

// Random inputs for the tests of every backend.
namespace arborist::kernels::gqa {

enum class Layer { kFull, kCausalWindow, kRandomRanges };

// Streams of one shape; the first has the longest context, `context` rows. Their rows lie in the planes in
// reverse order, with a few unused ones between, which hold NaN.
struct Case {
  int64_t block = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t context = 0;
  int64_t plane_rows = 0;
  std::vector<float> query, context_key, context_value, block_key, block_value;
  std::vector<int32_t> context_first, context_rows, context_begin, block_begin, block_end;

  int64_t streams() const { return static_cast<int64_t>(context_rows.size()); }
  int64_t rows() const { return streams() * block; }

  BlockAttentionGqaArgs Args(std::vector<float>& out) const {
    out.assign(rows() * heads * head_dim, std::nanf(""));
    return {.query = {query.data(), rows(), heads, head_dim},
            .block = block,
            .context_key = context_key.data(),
            .context_value = context_value.data(),
            .plane_rows = plane_rows,
            .context_first = {context_first.data(), streams()},
            .context_rows = {context_rows.data(), streams()},
            .max_context = context,
            .context_begin = {context_begin.data(), rows()},
            .block_begin = {block_begin.data(), rows()},
            .block_end = {block_end.data(), rows()},
            .block_key = {block_key.data(), rows(), kv_heads, head_dim},
            .block_value = {block_value.data(), rows(), kv_heads, head_dim},
            .scale = 0.25f,
            .out = {out.data(), rows(), heads, head_dim}};
  }

  // Row i sees nothing but its own key.
  void NarrowToItself(int64_t i) {
    context_begin[i] = context_rows[i / block];
    block_begin[i] = static_cast<int32_t>(i % block);
    block_end[i] = block_begin[i] + 1;
  }

  // NaN in every context row that no query sees.
  void ForbidUnseenRows() {
    for (int64_t s = 0; s < streams(); ++s) {
      const int64_t seen =
          *std::min_element(context_begin.begin() + s * block, context_begin.begin() + (s + 1) * block);
      const int64_t width = kv_heads * head_dim;
      for (int64_t i = context_first[s] * width; i < (context_first[s] + seen) * width; ++i) {
        context_key[i] = context_value[i] = std::nanf("");
      }
    }
  }

  // One stream of it, in the same planes.
  Case Alone(int64_t s) const {
    Case one = *this;
    const auto cut = [s](auto& values, int64_t count) {
      values = {values.begin() + s * count, values.begin() + (s + 1) * count};
    };
    cut(one.query, block * heads * head_dim);
    cut(one.block_key, block * kv_heads * head_dim);
    cut(one.block_value, block * kv_heads * head_dim);
    cut(one.context_first, 1);
    cut(one.context_rows, 1);
    cut(one.context_begin, block);
    cut(one.block_begin, block);
    cut(one.block_end, block);
    return one;
  }
};

// Ranges of one stream's rows, appended.
inline void AddRanges(Layer layer, int64_t context, std::mt19937& random, Case& c) {
  constexpr int64_t kWindow = 20;
  for (int64_t i = 0; i < c.block; ++i) {
    int64_t begin = 0;
    int64_t block_begin = 0;
    int64_t block_end = c.block;
    if (layer == Layer::kCausalWindow) {
      begin = std::clamp<int64_t>(context + i - kWindow + 1, 0, context);
      block_begin = std::max<int64_t>(0, i - kWindow + 1);
      block_end = i + 1;
    } else if (layer == Layer::kRandomRanges) {
      begin = static_cast<int64_t>(random() % (context + 1));
      block_begin = static_cast<int64_t>(random() % (i + 1));
      block_end = i + 1 + static_cast<int64_t>(random() % (c.block - i));
    }
    c.context_begin.push_back(static_cast<int32_t>(begin));
    c.block_begin.push_back(static_cast<int32_t>(block_begin));
    c.block_end.push_back(static_cast<int32_t>(block_end));
  }
}

inline Case RandomCase(int64_t block, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t context,
                       Layer layer, int64_t streams = 1) {
  constexpr int64_t kGap = 3;
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> normal(0, 1);
  Case c;
  c.block = block;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.context = context;
  const auto fill = [&](std::vector<float>& values, int64_t count) {
    values.resize(count);
    for (float& value : values) {
      value = normal(random);
    }
  };
  for (int64_t s = 0; s < streams; ++s) {
    const int64_t rows = s == 0 ? context : static_cast<int64_t>(random() % (context + 1));
    c.context_rows.push_back(static_cast<int32_t>(rows));
    AddRanges(layer, rows, random, c);
  }
  c.context_first.resize(streams);
  for (int64_t s = streams - 1; s >= 0; --s) {
    c.context_first[s] = static_cast<int32_t>(c.plane_rows);
    c.plane_rows += c.context_rows[s] + kGap;
  }
  const int64_t width = kv_heads * head_dim;
  fill(c.query, streams * block * heads * head_dim);
  fill(c.context_key, c.plane_rows * width);
  fill(c.context_value, c.plane_rows * width);
  for (int64_t s = 0; s < streams; ++s) {
    const int64_t end = (c.context_first[s] + c.context_rows[s]) * width;
    for (int64_t i = end; i < end + kGap * width; ++i) {
      c.context_key[i] = c.context_value[i] = std::nanf("");
    }
  }
  fill(c.block_key, streams * block * width);
  fill(c.block_value, streams * block * width);
  return c;
}

}  // namespace arborist::kernels::gqa
