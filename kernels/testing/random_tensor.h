#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "common/tensor/dtype.h"
#include "common/tensor/view.h"

namespace arborist::kernels::testing {

// Fresh random data for every run; the seed is printed by a failing test through SCOPED_TRACE(random.seed()).
class Random {
 public:
  Random() : Random(std::random_device{}()) {}
  explicit Random(uint64_t seed) : seed_(seed), engine_(seed) {}

  uint64_t seed() const { return seed_; }
  int64_t Uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  float Normal(float scale = 1.0f) { return std::normal_distribution<float>(0.0f, scale)(engine_); }
  std::vector<float> Normals(int64_t count, float scale = 1.0f) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
      value = Normal(scale);
    }
    return values;
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  uint64_t seed_;
  std::mt19937_64 engine_;
};

// A random matrix as a checkpoint stores it.
class StoredMatrix {
 public:
  StoredMatrix(Random& random, DType dtype, int64_t rows, int64_t columns, float scale = 1.0f)
      : dtype_(dtype), rows_(rows), columns_(columns) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float value = random.Normal(scale);
      if (dtype == DType::kF32) {
        floats_.push_back(value);
      } else if (dtype == DType::kBF16) {
        halves_.push_back(ToBFloat16(value).bits);
      } else {
        // Any finite half: sign, an exponent around one, a fraction.
        halves_.push_back(static_cast<uint16_t>(random.Uniform(0, 1) << 15 | random.Uniform(8, 16) << 10 |
                                                random.Uniform(0, 1023)));
      }
    }
  }
  WeightView view() const {
    return {dtype_ == DType::kF32 ? static_cast<const void*>(floats_.data()) : halves_.data(), dtype_, rows_,
            columns_};
  }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t columns_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
};

// Outputs start as NaN, so an element that was not written is found.
inline std::vector<float> Poisoned(int64_t count) {
  return std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

inline View2<float> AsView(std::vector<float>& values, int64_t rows, int64_t columns) {
  return {values.data(), rows, columns, columns};
}
inline View2<const float> AsConstView(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return {values.data(), rows, columns, columns};
}

}  // namespace arborist::kernels::testing
