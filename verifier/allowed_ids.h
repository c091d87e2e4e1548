#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/math.h"
#include "verifier/node_masks.h"

namespace arborist::verifier {

// The ids that the owner allows, the same after every text.
class AllowedIds final : public NodeMasks {
 public:
  AllowedIds(std::span<const TokenId> ids, int64_t vocabulary)
      : words_(static_cast<size_t>(CeilDiv(vocabulary, int64_t{32}))) {
    for (const TokenId id : ids) {
      words_[static_cast<size_t>(Raw(id) / 32)] |= 1u << (Raw(id) % 32);
    }
  }

  void Commit(std::span<const TokenId>) override {}
  void OfTree(std::span<const TokenId>, std::span<const int32_t>, std::span<const uint32_t*> mask) override {
    std::fill(mask.begin(), mask.end(), words_.data());
  }

 private:
  std::vector<uint32_t> words_;
};

}  // namespace arborist::verifier
