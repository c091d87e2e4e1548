#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace arborist {

// Byte-pair encoding of one piece of text: starting from single bytes, the adjacent pair with the lowest rank
// (leftmost on ties) is joined until no pair has a rank. Immutable after Create.
class Bpe {
 public:
  struct Tables {
    absl::flat_hash_map<std::string, int32_t> ids;            // bytes of every token of the base vocabulary
    std::vector<std::pair<std::string, std::string>> merges;  // by rank
    bool ignore_merges = false;  // a piece that is a token as a whole is that token
  };

  // InvalidArgument if a byte that text can contain, a part of a merge or its result has no id.
  static absl::StatusOr<Bpe> Create(Tables tables);

  // Appends the ids of `piece`. O(n log n) in its length.
  void Encode(std::string_view piece, std::vector<int32_t>& out) const;

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  static uint64_t Key(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }
  const Merge* Find(int32_t left, int32_t right) const;
  void MergeShort(std::string_view piece, std::vector<int32_t>& out) const;
  void MergeLong(std::string_view piece, std::vector<int32_t>& out) const;

  std::array<int32_t, 256> byte_ids_{};
  absl::flat_hash_map<uint64_t, Merge> merges_;
  // Pieces known to become exactly one token: most words of a text.
  absl::flat_hash_map<std::string, int32_t> whole_;
};

}  // namespace arborist
