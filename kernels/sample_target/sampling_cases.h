#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/sample_target/sample_target.h"

namespace arborist::kernels {

// Rows to sample from, for tests.
struct Batch {
  int64_t vocabulary;
  std::vector<float> logits;
  std::vector<int32_t> position;
  std::vector<int32_t> params_index;
  std::vector<SamplingParams> params;

  int64_t rows() const { return static_cast<int64_t>(position.size()); }
  void Add(const std::vector<float>& row, int32_t at, const SamplingParams& with) {
    logits.insert(logits.end(), row.begin(), row.end());
    position.push_back(at);
    params_index.push_back(static_cast<int32_t>(params.size()));
    params.push_back(with);
  }
};

class Generator {
 public:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  SamplingParams Params(int64_t vocabulary) {
    const float temperatures[] = {0, 1e-30f, 0.01f, 0.3f, 0.7f, 1, 1.3f, 50, 1e30f};
    const float top_ps[] = {1, 1, 0.9f, 0.5f, 0.999999f, 1e-30f, std::nextafter(1.0f, 0.0f)};
    const float min_ps[] = {0, 0, 0.05f, 1, 1e-20f};
    SamplingParams params;
    params.temperature = temperatures[Below(9)];
    params.top_k = Below(2) == 0 ? 0 : 1 + static_cast<int32_t>(Below(static_cast<uint32_t>(vocabulary + 3)));
    params.top_k = Below(3) == 0 ? std::min(params.top_k, 20) : params.top_k;
    params.top_p = top_ps[Below(7)];
    params.min_p = min_ps[Below(5)];
    params.seed = (uint64_t{Below(1u << 31)} << 33) ^ Below(1u << 31);
    params.sample_index = Below(3);
    return params;
  }

  // Every kind of row that a threshold search can stumble over.
  std::vector<float> Row(int64_t vocabulary) {
    const uint32_t kind = Below(9);
    std::normal_distribution<float> normal(0, kind == 0 ? 1.0f : 6.0f);
    std::vector<float> row(vocabulary);
    const float constant = normal(random_);
    for (float& value : row) {
      const float x = normal(random_);
      value = kind <= 1   ? x
              : kind == 2 ? constant                                           // all equal
              : kind == 3 ? std::round(x / 4)                                  // many ties
              : kind == 4 ? (Below(2) == 0 ? 0.0f : -0.0f)                     // both zeros
              : kind == 5 ? std::ldexp(x, static_cast<int>(Below(240)) - 120)  // huge range
              : kind == 6 ? -std::abs(x) * 1e-42f                              // subnormal
              : kind == 7 ? (Below(2) == 0 ? 3e38f : -3e38f)                   // differences overflow
                          : -30.0f;
    }
    if (kind == 8) {
      row[Below(static_cast<uint32_t>(vocabulary))] = 40;  // one-hot
    }
    return row;
  }

 private:
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace arborist::kernels
