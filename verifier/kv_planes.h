#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/tensor/dtype.h"
#include "common/tensor/view.h"

namespace arborist::verifier {

struct KvShape {
  int layers = 0;
  int64_t pages = 0;                // of 64 slots
  DType latent_type = DType::kF32;  // F32 or BF16
  int64_t latent_row = 0;           // kv_lora_rank + qk_rope_head_dim elements
  int64_t feature_row = 0;          // hidden size, bf16; 0: no features
};

// What one page takes in all planes.
int64_t PageBytes(const KvShape& shape);

// The memory of the paged cache: one plane a layer for latent K/V rows, and one for features if a projection
// is configured, all in the device's memory. Every plane is [slots, row elements] with slots = pages * 64; a
// slot means the same row in all planes. Zero at first.
class KvPlanes {
 public:
  // More than the device holds is ResourceExhausted.
  static absl::StatusOr<KvPlanes> Create(const KvShape& shape, Device& device);

  const KvShape& shape() const { return shape_; }
  int layers() const { return shape_.layers; }
  int64_t pages() const { return shape_.pages; }
  int64_t slots() const;
  int64_t latent_row() const { return shape_.latent_row; }
  void* latent(int layer) const { return plane_data_[layer]; }
  bool has_features() const { return shape_.feature_row > 0; }
  int64_t feature_row() const { return shape_.feature_row; }
  BFloat16* features() const {
    return has_features() ? static_cast<BFloat16*>(plane_data_[shape_.layers]) : nullptr;
  }
  size_t total_bytes() const { return memory_.bytes(); }

  // All planes.
  std::span<void* const> plane_data() const { return plane_data_; }
  std::span<const int64_t> plane_row_bytes() const { return plane_row_bytes_; }
  // The same lists in the device's memory, for kv_compact.
  View1<void* const> plane_table() const {
    return {plane_table_.As<void* const>(), static_cast<int64_t>(plane_data_.size())};
  }
  View1<const int64_t> row_bytes_table() const {
    return {row_bytes_table_.As<const int64_t>(), static_cast<int64_t>(plane_row_bytes_.size())};
  }

 private:
  KvPlanes() = default;

  KvShape shape_;
  DeviceMemory memory_;
  DeviceMemory plane_table_;
  DeviceMemory row_bytes_table_;
  std::vector<void*> plane_data_;
  std::vector<int64_t> plane_row_bytes_;
};

}  // namespace arborist::verifier
