#pragma once

#include <bit>
#include <cstdint>

namespace arborist::kernels {

// Orders floats as integers: a < b means OrderKey(a) < OrderKey(b), and -0 equals +0. constexpr: device code
// too.
constexpr uint32_t OrderKey(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (bits == 0x80000000u) {
    return 0x80000000u;
  }
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The float of a key; 0x80000000 is +0.
constexpr float FloatOfKey(uint32_t key) {
  return std::bit_cast<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

// Unique in a row: larger is better, by (value, lower id).
constexpr uint64_t RankKey(float value, int32_t id) {
  return (uint64_t{OrderKey(value)} << 32) | static_cast<uint32_t>(~id);
}
constexpr float ValueOfRankKey(uint64_t key) { return FloatOfKey(static_cast<uint32_t>(key >> 32)); }
constexpr int32_t IdOfRankKey(uint64_t key) { return static_cast<int32_t>(~static_cast<uint32_t>(key)); }

}  // namespace arborist::kernels
