#include "verifier/kv_planes.h"

#include "common/base/check.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {

KvPlanes::KvPlanes(int layers, int64_t pages, int64_t latent_row, int64_t feature_row)
    : layers_(layers),
      slots_(pages * kernels::kPageRows),
      latent_row_(latent_row),
      feature_row_(feature_row) {
  Check(layers > 0 && pages > 0 && latent_row > 0 && feature_row >= 0, "planes need layers, pages and rows");
  planes_.reserve(static_cast<size_t>(layers) + 1);
  for (int i = 0; i < layers; ++i) {
    planes_.push_back({DType::kF32, latent_row, {}});
  }
  if (feature_row > 0) {
    planes_.push_back({DType::kBF16, feature_row, {}});
  }
  for (Plane& plane : planes_) {
    const auto row_bytes = static_cast<int64_t>(ByteSize(plane.dtype)) * plane.row_elements;
    plane.bytes.resize(static_cast<size_t>(slots_ * row_bytes));
    plane_data_.push_back(plane.bytes.data());
    plane_row_bytes_.push_back(row_bytes);
  }
}

int64_t KvPlanes::pages() const { return slots_ / kernels::kPageRows; }

float* KvPlanes::latent(int layer) { return reinterpret_cast<float*>(planes_[layer].bytes.data()); }

const float* KvPlanes::latent(int layer) const {
  return reinterpret_cast<const float*>(planes_[layer].bytes.data());
}

BFloat16* KvPlanes::features() {
  return has_features() ? reinterpret_cast<BFloat16*>(planes_[layers_].bytes.data()) : nullptr;
}

size_t KvPlanes::total_bytes() const {
  size_t total = 0;
  for (const Plane& plane : planes_) {
    total += plane.bytes.size();
  }
  return total;
}

}  // namespace arborist::verifier
