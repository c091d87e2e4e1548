#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/gqa_heads/gqa_heads.h"
#include "kernels/testing/random_tensor.h"

// Random inputs for the tests of every backend.
namespace arborist::kernels::gqa_heads {

struct Shape {
  int64_t block_rows;
  int64_t more_rows;  // the context's
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  RopePairing pairing = RopePairing::kHalfSplit;
  bool normed = true;
};

// Inputs lie in rows that are wider than they need; every third context row is a padding row.
struct Case {
  static constexpr int64_t kPositions = 300, kExtra = 5;

  Case(const Shape& shape, testing::Random& random)
      : shape(shape),
        query_stride(shape.heads * shape.head_dim + kExtra),
        key_stride(2 * width() + kExtra),
        plane_rows(2 * shape.more_rows + 1),
        query_in(random.Normals(shape.block_rows * query_stride)),
        key_value_in(random.Normals(rows() * key_stride)),
        query_norm(random.Normals(shape.head_dim)),
        key_norm(random.Normals(shape.head_dim)),
        cosine(random.Normals(kPositions * shape.head_dim / 2)),
        sine(random.Normals(kPositions * shape.head_dim / 2)) {
    for (int64_t t = 0; t < rows(); ++t) {
      position.push_back(static_cast<int32_t>(random.Uniform(0, kPositions - 1)));
    }
    for (int64_t t = 0; t < shape.more_rows; ++t) {
      slot.push_back(t % 3 == 2 ? -1 : static_cast<int32_t>(plane_rows - 1 - 2 * t));
    }
  }
  int64_t rows() const { return shape.block_rows + shape.more_rows; }
  int64_t width() const { return shape.kv_heads * shape.head_dim; }

  // What a backend reads and writes, by its own pointers.
  struct Memory {
    const float *query_in, *key_value_in, *query_norm, *key_norm, *cosine, *sine;
    const int32_t *position, *slot;
    float *query, *key, *value, *key_plane, *value_plane;
  };
  GqaHeadsArgs Args(const Memory& m) const {
    const int64_t dim = shape.head_dim, norm = shape.normed ? dim : 0;
    return {.query_in = {m.query_in, shape.block_rows, shape.heads * dim, query_stride},
            .key_in = {m.key_value_in, rows(), width(), key_stride},
            .value_in = {m.key_value_in + width(), rows(), width(), key_stride},
            .query_norm = {m.query_norm, norm},
            .key_norm = {m.key_norm, norm},
            .epsilon = 1e-6f,
            .position = {m.position, rows()},
            .cosine = {m.cosine, kPositions, dim / 2, dim / 2},
            .sine = {m.sine, kPositions, dim / 2, dim / 2},
            .pairing = shape.pairing,
            .query = {m.query, shape.block_rows, shape.heads, dim},
            .key = {m.key, shape.block_rows, shape.kv_heads, dim},
            .value = {m.value, shape.block_rows, shape.kv_heads, dim},
            .slot = {m.slot, shape.more_rows},
            .key_plane = m.key_plane,
            .value_plane = m.value_plane,
            .plane_rows = plane_rows};
  }
  int64_t query_size() const { return shape.block_rows * shape.heads * shape.head_dim; }
  int64_t key_size() const { return shape.block_rows * width(); }
  int64_t plane_size() const { return plane_rows * width(); }

  Shape shape;
  int64_t query_stride, key_stride, plane_rows;
  std::vector<float> query_in, key_value_in, query_norm, key_norm, cosine, sine;
  std::vector<int32_t> position, slot;
};

// All outputs, one after the other; NaN where nothing was written.
inline std::vector<float> RunOnHost(const Case& c, absl::Status (*kernel)(const GqaHeadsArgs&, StreamView),
                                    StreamView stream) {
  const float nan = std::nanf("");
  std::vector<float> query(c.query_size(), nan), key(c.key_size(), nan), value(c.key_size(), nan),
      key_plane(c.plane_size(), nan), value_plane(c.plane_size(), nan), all;
  const absl::Status status =
      kernel(c.Args({c.query_in.data(), c.key_value_in.data(), c.query_norm.data(), c.key_norm.data(),
                     c.cosine.data(), c.sine.data(), c.position.data(), c.slot.data(), query.data(),
                     key.data(), value.data(), key_plane.data(), value_plane.data()}),
             stream);
  EXPECT_TRUE(status.ok()) << status;
  for (const std::vector<float>* part : {&query, &key, &value, &key_plane, &value_plane}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

inline std::vector<Shape> ManyShapes() {
  std::vector<Shape> shapes;
  for (const int64_t dim : {2, 32, 64, 100, 128, 256}) {
    shapes.push_back({8, 0, 8, 4, dim});
    shapes.push_back({8, 8, 8, 4, dim});
    shapes.push_back({1, 3, 3, 1, dim, RopePairing::kInterleaved});
    shapes.push_back({0, 7, 4, 2, dim});
    shapes.push_back({5, 0, 0, 2, dim, RopePairing::kHalfSplit, false});
  }
  return shapes;
}

}  // namespace arborist::kernels::gqa_heads
