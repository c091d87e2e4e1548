#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/projection/projection.h"
#include "common/tensor/view.h"
#include "kernels/kernel_set.h"
#include "verifier/kv_planes.h"

namespace arborist::verifier {

// Fills the feature plane. A thin caller of the kernel with its weights and scratch in the device's memory.
class FeatureProjection {
 public:
  // What Create allocates on a GPU.
  static int64_t BytesOnGpu(const Projection& projection, int64_t max_rows);
  // Rows are projected at most max_rows at a time on a GPU, some dozens on the CPU. The device outlives it.
  static absl::StatusOr<FeatureProjection> Create(Projection projection, int64_t max_rows, Device& device);

  const std::string& hash() const { return projection_.hash; }
  int64_t hidden() const { return projection_.hidden(); }

  // On the CPU: projects taps.row(rows[i]) and stores it in slot slots[i] of the plane, for every i.
  absl::Status Store(const kernels::KernelSet& kernels, View2<const float> taps,
                     std::span<const int32_t> rows, std::span<const int32_t> slots, KvPlanes& planes,
                     StreamView stream);

  // On any device: projects every row of taps into `out` ([taps.rows, hidden]) and stores row t in slot[t] of
  // the plane; a negative slot stores nothing.
  absl::Status StoreAll(const kernels::KernelSet& kernels, View2<const float> taps, View1<const int32_t> slot,
                        View2<BFloat16> out, KvPlanes& planes, StreamView stream);

 private:
  explicit FeatureProjection(Projection projection) : projection_(std::move(projection)) {}
  absl::Status CheckTaps(View2<const float> taps) const;
  absl::Status Project(const kernels::KernelSet& kernels, View2<const float> taps, View1<const int32_t> slot,
                       View2<BFloat16> out, KvPlanes& planes, StreamView stream);

  Projection projection_;
  WeightView fc_;           // in the device's memory, like all below
  DeviceMemory fc_memory_;  // empty where fc is used as it is mapped
  DeviceMemory norm_;       // [hidden]
  DeviceMemory projected_;  // [group rows, hidden]
  DeviceMemory taps_;       // CPU: [group rows, taps * hidden]: rows of a path are no neighbours
  DeviceMemory feature_;    // CPU: [group rows, hidden]
};

}  // namespace arborist::verifier
