#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace arborist::kernels::bench {

// A bench that is fast and wrong is worth nothing: each compares what its last launch left with the oracle.
// All of these end the program, naming the kernel, when the outputs differ or cannot be read.

void DownloadBytes(const void* from, void* to, size_t bytes);

// Waits for the device first.
template <typename T>
std::vector<std::remove_const_t<T>> Download(T* from, int64_t count) {
  std::vector<std::remove_const_t<T>> values(static_cast<size_t>(count));
  DownloadBytes(from, values.data(), values.size() * sizeof(T));
  return values;
}

// bf16 values, widened.
std::vector<float> DownloadBf16(const void* from, int64_t count);

// Each element within `tolerance` of the largest of `want`; a NaN is a difference.
void ExpectNear(const std::string& kernel, std::span<const float> got, std::span<const float> want,
                float tolerance);

[[noreturn]] void Differs(const std::string& kernel, size_t element);

template <typename T>
void ExpectEqual(const std::string& kernel, const std::vector<T>& got, const std::vector<T>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (i >= got.size() || !(got[i] == want[i])) {
      Differs(kernel, i);
    }
  }
}

}  // namespace arborist::kernels::bench
