#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/projection/projection.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/kv_planes.h"

namespace arborist::verifier {

// Fills the feature plane. A thin caller of the kernel with its scratch.
class FeatureProjection {
 public:
  explicit FeatureProjection(Projection projection);

  const std::string& hash() const { return projection_.hash; }
  int64_t hidden() const { return projection_.hidden(); }

  // Projects taps.row(rows[i]) and stores it in slot slots[i] of the plane, for every i.
  absl::Status Store(const kernels::KernelSet& kernels, View2<const float> taps,
                     std::span<const int32_t> rows, std::span<const int32_t> slots, KvPlanes& planes,
                     StreamView stream);

 private:
  Projection projection_;
  std::vector<float> taps_;        // [kGroupRows, taps * hidden]: rows of a path are no neighbours
  std::vector<float> projected_;   // [kGroupRows, hidden]
  std::vector<BFloat16> feature_;  // [kGroupRows, hidden]
};

}  // namespace arborist::verifier
