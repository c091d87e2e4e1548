#include "verifier/kv_planes.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

template <typename T>
absl::StatusOr<DeviceMemory> Upload(const std::vector<T>& values, Device& device) {
  const size_t bytes = values.size() * sizeof(T);
  ASSIGN_OR_RETURN(DeviceMemory memory, device.Allocate(bytes, "list of KV planes"));
  RETURN_IF_ERROR(device.Copy(memory.data(), values.data(), bytes));
  return memory;
}

int64_t LatentRowBytes(const KvShape& shape) {
  return shape.latent_row * static_cast<int64_t>(ByteSize(shape.latent_type));
}

int64_t FeatureRowBytes(const KvShape& shape) {
  return shape.feature_row * static_cast<int64_t>(sizeof(BFloat16));
}

}  // namespace

int64_t PageBytes(const KvShape& shape) {
  return kernels::kPageRows * (shape.layers * LatentRowBytes(shape) + FeatureRowBytes(shape));
}

absl::StatusOr<KvPlanes> KvPlanes::Create(const KvShape& shape, Device& device) {
  Check(shape.layers > 0 && shape.pages > 0 && shape.latent_row > 0 && shape.feature_row >= 0,
        "planes need layers, pages and rows");
  Check(shape.latent_type == DType::kF32 || shape.latent_type == DType::kBF16, "K/V is F32 or BF16");
  KvPlanes planes;
  planes.shape_ = shape;
  planes.plane_row_bytes_.assign(static_cast<size_t>(shape.layers), LatentRowBytes(shape));
  if (shape.feature_row > 0) {
    planes.plane_row_bytes_.push_back(FeatureRowBytes(shape));
  }
  ASSIGN_OR_RETURN(planes.memory_,
                   device.Allocate(static_cast<size_t>(shape.pages * PageBytes(shape)),
                                   absl::StrCat("KV cache, ", shape.pages, " pages of 64 positions")));
  // A plane begins at a multiple of 64 rows of an even number of bytes: 128-byte aligned.
  auto* plane = planes.memory_.As<std::byte>();
  for (const int64_t row_bytes : planes.plane_row_bytes_) {
    planes.plane_data_.push_back(plane);
    plane += planes.slots() * row_bytes;
  }
  ASSIGN_OR_RETURN(planes.plane_table_, Upload(planes.plane_data_, device));
  ASSIGN_OR_RETURN(planes.row_bytes_table_, Upload(planes.plane_row_bytes_, device));
  RETURN_IF_ERROR(device.Synchronize());
  return planes;
}

int64_t KvPlanes::slots() const { return shape_.pages * kernels::kPageRows; }

}  // namespace arborist::verifier
