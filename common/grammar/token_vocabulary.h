#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

namespace arborist {

// The bytes of every token, as a trie to walk constraints over. Immutable; built once for each tokenizer.
class TokenVocabulary {
 public:
  // By token id; an empty entry is an id without text (special, or unused).
  explicit TokenVocabulary(std::vector<std::string> bytes);

  // The ids [0, size). Special tokens and those that the tokenizer does not know have no text.
  static std::shared_ptr<const TokenVocabulary> FromTokenizer(const Tokenizer& tokenizer, int32_t size);

  int32_t size() const { return static_cast<int32_t>(bytes_.size()); }
  int32_t words() const { return (size() + 31) / 32; }  // of a mask
  const std::string& bytes(int32_t token) const { return bytes_[token]; }
  bool HasByte(uint8_t byte) const { return has_byte_[byte]; }  // a token is just this byte

  // The trie in preorder without its root.
  struct Node {
    uint8_t byte;
    int32_t depth;        // 1 for the first byte of a token
    int32_t after;        // the first node that is not below this one
    int32_t first_token;  // tokens that end here are tokens()[first_token, next node's first_token)
  };
  const std::vector<Node>& nodes() const { return nodes_; }  // with one more at the end, for first_token
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int32_t max_depth() const { return max_depth_; }
  const std::vector<int32_t>& silent() const { return silent_; }  // ids without text, ascending
  size_t bytes() const;                                           // of memory, about

 private:
  std::vector<std::string> bytes_;
  std::array<bool, 256> has_byte_{};
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> silent_;
  int32_t max_depth_ = 0;
};

}  // namespace arborist
