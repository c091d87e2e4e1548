#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "kernels/mla_latents/mla_latents.h"
#include "kernels/testing/random_tensor.h"

// Random rows for tests of mla_latents, on the host.
namespace arborist::kernels::mla_latents {

struct Shape {
  int64_t rows;
  int64_t q_rank;
  int64_t latent;
  int64_t rope;
};

inline std::vector<Shape> ManyShapes() {
  return {{1, 24, 32, 16}, {5, 0, 40, 8},      {7, 1536, 512, 64}, {33, 128, 128, 32},
          {2, 3, 5, 2},    {3, 2051, 700, 12}, {2, 7168, 129, 8},  {0, 8, 8, 8}};
}

struct Case {
  static constexpr int64_t kSlots = 200;
  static constexpr int64_t kPositions = 50;

  Case(const Shape& shape, testing::Random& random)
      : shape(shape),
        stride(shape.q_rank + shape.latent + shape.rope + 3),
        compressed(random.Normals(shape.rows * stride)),
        query_norm(random.Normals(shape.q_rank)),
        key_norm(random.Normals(shape.latent)),
        cosine(random.Normals(kPositions * shape.rope / 2)),
        sine(random.Normals(kPositions * shape.rope / 2)) {
    for (int64_t t = 0; t < shape.rows; ++t) {
      position.push_back(static_cast<int32_t>((t * 7) % kPositions));
      slot.push_back(t % 6 == 4 ? -1 : static_cast<int32_t>((t * 37) % kSlots));  // 37 and 200 are coprime
    }
  }

  int64_t width() const { return shape.latent + shape.rope; }

  // Over arrays of any backend with the sizes of those here and a plane of kSlots rows.
  MlaLatentsArgs Args(float* rows, const float* q_norm, const float* k_norm, const float* cosines,
                      const float* sines, const int32_t* positions, const int32_t* slots, void* plane,
                      DType dtype, RopePairing pairing) const {
    return {.query = {rows, shape.rows, shape.q_rank, stride},
            .query_norm = {q_norm, shape.q_rank},
            .key = {rows + shape.q_rank, shape.rows, width(), stride},
            .key_norm = {k_norm, shape.latent},
            .epsilon = 1e-6f,
            .position = {positions, shape.rows},
            .cosine = {cosines, kPositions, shape.rope / 2, shape.rope / 2},
            .sine = {sines, kPositions, shape.rope / 2, shape.rope / 2},
            .pairing = pairing,
            .slot = {slots, shape.rows},
            .plane = plane,
            .plane_dtype = dtype,
            .slots = kSlots};
  }

  Shape shape;
  int64_t stride;
  std::vector<float> compressed;  // [rows, stride]: query latent, key latent, rope part, a gap
  std::vector<float> query_norm;
  std::vector<float> key_norm;
  std::vector<float> cosine;
  std::vector<float> sine;
  std::vector<int32_t> position;
  std::vector<int32_t> slot;
};

// What a run leaves that counts: query latents, then the fp32 plane.
template <typename Function>
std::vector<float> RunOnHost(const Case& c, Function function, RopePairing pairing, StreamView stream) {
  std::vector<float> rows = c.compressed, plane(static_cast<size_t>(Case::kSlots * c.width()), -7.0f), all;
  const absl::Status status =
      function(c.Args(rows.data(), c.query_norm.data(), c.key_norm.data(), c.cosine.data(), c.sine.data(),
                      c.position.data(), c.slot.data(), plane.data(), DType::kF32, pairing),
               stream);
  Check(status.ok(), status.ToString());
  for (int64_t t = 0; t < c.shape.rows; ++t) {
    all.insert(all.end(), rows.begin() + t * c.stride, rows.begin() + t * c.stride + c.shape.q_rank);
  }
  all.insert(all.end(), plane.begin(), plane.end());
  return all;
}

}  // namespace arborist::kernels::mla_latents
