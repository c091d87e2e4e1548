#include "common/grammar/token_vocabulary.h"

#include <algorithm>

namespace arborist {

TokenVocabulary::TokenVocabulary(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  for (int32_t token = 0; token < size(); ++token) {
    (bytes_[token].empty() ? silent_ : tokens_).push_back(token);
    if (bytes_[token].size() == 1) {
      has_byte_[static_cast<uint8_t>(bytes_[token][0])] = true;
    }
  }
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [&](int32_t a, int32_t b) { return bytes_[a] < bytes_[b]; });
  std::vector<int32_t> open;  // nodes from the root to the last token's end
  const std::string* last = nullptr;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = bytes_[tokens_[i]];
    size_t common = 0;
    while (last != nullptr && common < last->size() && common < text.size() &&
           (*last)[common] == text[common]) {
      ++common;
    }
    for (; open.size() > common; open.pop_back()) {
      nodes_[open.back()].after = static_cast<int32_t>(nodes_.size());
    }
    for (size_t depth = common; depth < text.size(); ++depth) {
      open.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back(
          {static_cast<uint8_t>(text[depth]), static_cast<int32_t>(depth + 1), 0, static_cast<int32_t>(i)});
    }
    max_depth_ = std::max(max_depth_, static_cast<int32_t>(text.size()));
    last = &text;
  }
  for (const int32_t node : open) {
    nodes_[node].after = static_cast<int32_t>(nodes_.size());
  }
  nodes_.push_back({0, 0, 0, static_cast<int32_t>(tokens_.size())});
}

size_t TokenVocabulary::bytes() const {
  constexpr size_t kWithinString = 15;
  size_t sum = nodes_.capacity() * sizeof(Node) +
               (tokens_.capacity() + silent_.capacity()) * sizeof(int32_t) +
               bytes_.capacity() * sizeof(std::string);
  for (const std::string& text : bytes_) {
    sum += text.size() > kWithinString ? text.size() + 1 : 0;
  }
  return sum;
}

std::shared_ptr<const TokenVocabulary> TokenVocabulary::FromTokenizer(const Tokenizer& tokenizer,
                                                                      int32_t size) {
  std::vector<std::string> bytes(static_cast<size_t>(size));
  for (int32_t id = 0; id < std::min(size, tokenizer.size()); ++id) {
    if (tokenizer.IsKnown(TokenId{id}) && !tokenizer.IsSpecial(TokenId{id})) {
      bytes[id] = std::string(tokenizer.Bytes(TokenId{id}));
    }
  }
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

}  // namespace arborist
