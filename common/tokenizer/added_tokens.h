#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arborist {

// One entry of tokenizer.json's added_tokens: text that is found before anything else is split.
struct AddedToken {
  int32_t id = 0;
  std::string content;      // not empty
  bool special = false;     // a mark of the format, not text
  bool lstrip = false;      // takes the white space before it along
  bool rstrip = false;      // and after it
  bool normalized = false;  // found in normalized text, in a second pass
  std::string sought;       // what is looked for: the content, normalized if `normalized`; empty: never found
};

// Finds added tokens, leftmost first, longest first at one place: those that stand in raw text, then, between
// them, those that stand in normalized text.
class AddedTokenFinder {
 public:
  // A stretch of text: an added token (id >= 0) or what stands between two of them (id = -1).
  struct Stretch {
    std::string_view text;
    int32_t id;
  };

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(const std::vector<AddedToken>& tokens);

  // Cuts `text` into stretches, none empty. `with_special` = false leaves special tokens as text.
  void SplitRaw(std::string_view text, bool with_special, std::vector<Stretch>& out) const;
  void SplitNormalized(std::string_view text, bool with_special, std::vector<Stretch>& out) const;

 private:
  // A trie over bytes; node 0 is the root. Children of a node stand in one list.
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t token = -1;  // index into tokens_
    uint8_t byte = 0;
  };
  struct Pass {
    std::vector<Node> nodes = std::vector<Node>(1);
    std::array<bool, 256> begins{};  // whether a token begins with the byte
    void Insert(std::string_view sought, int32_t token);
    int32_t LongestAt(std::string_view text) const;  // index of the longest token at the start, or -1
  };

  void SplitBy(const Pass& pass, std::string_view text, bool with_special, std::vector<Stretch>& out) const;

  std::vector<AddedToken> tokens_;
  Pass raw_;
  Pass normalized_;
};

}  // namespace arborist
