#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/math.h"

namespace arborist::drafter {

// Hands out neighbouring arrays of one block of memory, each 256-byte aligned. With a null base it only
// counts, so the same code says how much to allocate and where everything lies.
class Carver {
 public:
  explicit Carver(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <typename T>
  T* Take(int64_t count) {
    const int64_t at = RoundUp(bytes_, 256);
    bytes_ = at + count * static_cast<int64_t>(sizeof(T));
    return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
  }
  size_t bytes() const { return static_cast<size_t>(bytes_); }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

}  // namespace arborist::drafter
