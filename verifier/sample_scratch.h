#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/view.h"

namespace arborist::verifier {

// Asked for by sample_target's checks, of every backend.
inline constexpr size_t kScratchAlignment = 64;

// What of `bytes` begins on that boundary: they hold kScratchAlignment more than is needed.
inline View1<std::byte> Aligned(std::vector<std::byte>& bytes) {
  void* data = bytes.data();
  size_t space = bytes.size();
  Check(std::align(kScratchAlignment, 1, data, space) != nullptr, "scratch has room to align");
  return {static_cast<std::byte*>(data), static_cast<int64_t>(space)};
}

}  // namespace arborist::verifier
