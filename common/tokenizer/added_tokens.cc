#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/base/utf8.h"

namespace arborist {
void AddedTokenFinder::Pass::Insert(std::string_view sought, int32_t token) {
  if (sought.empty()) {
    return;
  }
  begins[static_cast<uint8_t>(sought[0])] = true;
  int32_t at = 0;
  for (const char c : sought) {
    const uint8_t byte = static_cast<uint8_t>(c);
    int32_t child = nodes[at].first_child;
    while (child >= 0 && nodes[child].byte != byte) {
      child = nodes[child].next_sibling;
    }
    if (child < 0) {
      child = static_cast<int32_t>(nodes.size());
      nodes.push_back({.first_child = -1, .next_sibling = nodes[at].first_child, .token = -1, .byte = byte});
      nodes[at].first_child = child;
    }
    at = child;
  }
  nodes[at].token = token;
}

int32_t AddedTokenFinder::Pass::LongestAt(std::string_view text) const {
  int32_t longest = -1;
  int32_t at = 0;
  for (const char c : text) {
    int32_t child = nodes[at].first_child;
    while (child >= 0 && nodes[child].byte != static_cast<uint8_t>(c)) {
      child = nodes[child].next_sibling;
    }
    if (child < 0) {
      break;
    }
    at = child;
    if (nodes[at].token >= 0) {
      longest = nodes[at].token;
    }
  }
  return longest;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens) : tokens_(tokens) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    (tokens_[i].normalized ? normalized_ : raw_).Insert(tokens_[i].sought, static_cast<int32_t>(i));
  }
}

void AddedTokenFinder::SplitRaw(std::string_view text, bool with_special, std::vector<Stretch>& out) const {
  SplitBy(raw_, text, with_special, out);
}

void AddedTokenFinder::SplitNormalized(std::string_view text, bool with_special,
                                       std::vector<Stretch>& out) const {
  SplitBy(normalized_, text, with_special, out);
}

void AddedTokenFinder::SplitBy(const Pass& pass, std::string_view text, bool with_special,
                               std::vector<Stretch>& out) const {
  out.clear();
  size_t open = 0;  // the text before it is already out
  size_t at = 0;
  while (at < text.size()) {
    const bool may_begin = pass.begins[static_cast<uint8_t>(text[at])];
    const int32_t index = may_begin ? pass.LongestAt(text.substr(at)) : -1;
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t begin = at;
    size_t end = at + token.sought.size();
    at = end;
    if (token.special && !with_special) {
      continue;
    }
    if (token.lstrip) {
      begin = open + TrailingSpaceBegin(text.substr(open, begin - open));
    }
    if (token.rstrip) {
      end += LeadingSpaceBytes(text.substr(end));
    }
    if (open < begin) {
      out.push_back({text.substr(open, begin - open), -1});
    }
    out.push_back({text.substr(begin, end - begin), token.id});
    open = end;
    at = std::max(at, end);
  }
  if (open < text.size()) {
    out.push_back({text.substr(open), -1});
  }
}

}  // namespace arborist
