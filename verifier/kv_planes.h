#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/tensor/dtype.h"

namespace arborist::verifier {

// The memory of the paged cache: one plane a layer for latent K/V rows, and one for features if a projection
// is configured. Every plane is [slots, row elements] with slots = pages * 64; a slot means the same row in
// all planes.
class KvPlanes {
 public:
  struct Plane {
    DType dtype;
    int64_t row_elements;
    std::vector<std::byte> bytes;  // 64-byte aligned storage is not needed: rows are read by unaligned loads
  };

  // latent_row = kv_lora_rank + qk_rope_head_dim (fp32 on the CPU); feature_row = hidden size (bf16), 0 = no
  // plane.
  KvPlanes(int layers, int64_t pages, int64_t latent_row, int64_t feature_row);

  int layers() const { return layers_; }
  int64_t slots() const { return slots_; }
  int64_t pages() const;
  float* latent(int layer);
  const float* latent(int layer) const;
  int64_t latent_row() const { return latent_row_; }
  bool has_features() const { return feature_row_ > 0; }
  BFloat16* features();
  int64_t feature_row() const { return feature_row_; }
  size_t total_bytes() const;

  // All planes, for kv_compact.
  std::span<void* const> plane_data() const { return plane_data_; }
  std::span<const int64_t> plane_row_bytes() const { return plane_row_bytes_; }

 private:
  int layers_;
  int64_t slots_;
  int64_t latent_row_;
  int64_t feature_row_;
  std::vector<Plane> planes_;
  std::vector<void*> plane_data_;
  std::vector<int64_t> plane_row_bytes_;
};

}  // namespace arborist::verifier
