#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/math.h"

namespace arborist::verifier {

// Places arrays one after the other in a block, each at a multiple of 16 bytes. With a null base it only
// counts: the arrays must not be used then.
class BlockLayout {
 public:
  explicit BlockLayout(std::byte* base) : base_(base) {}

  template <typename T>
  void Take(T*& array, int64_t elements) {
    array = reinterpret_cast<T*>(base_ + bytes_);
    bytes_ = RoundUp(bytes_ + elements * static_cast<int64_t>(sizeof(T)), kAlignment);
  }
  int64_t bytes() const { return bytes_; }  // of all so far

 private:
  static constexpr int64_t kAlignment = 16;

  std::byte* base_;
  int64_t bytes_ = 0;
};

}  // namespace arborist::verifier
