#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "common/tokenizer/utf8.h"

namespace arborist {
namespace {

// Where the white space at the end of `text` begins.
size_t TrailingSpaceBegin(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) {
      --at;
    }
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter || !IsUnicodeSpace(step.character)) {
      break;
    }
    begin = at;
  }
  return begin;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter || !IsUnicodeSpace(step.character)) {
      break;
    }
    at += step.bytes;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::Pass::Insert(std::string_view content, int32_t token) {
  int32_t at = 0;
  for (const char c : content) {
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
    (tokens_[i].normalized ? normalized_ : plain_).Insert(tokens_[i].content, static_cast<int32_t>(i));
  }
}

std::vector<AddedTokenFinder::Stretch> AddedTokenFinder::Split(std::string_view text,
                                                               bool with_special) const {
  std::vector<Stretch> first;
  SplitBy(plain_, text, with_special, first);
  std::vector<Stretch> out;
  for (const Stretch& stretch : first) {
    if (stretch.id >= 0) {
      out.push_back(stretch);
    } else {
      SplitBy(normalized_, stretch.text, with_special, out);
    }
  }
  return out;
}

void AddedTokenFinder::SplitBy(const Pass& pass, std::string_view text, bool with_special,
                               std::vector<Stretch>& out) const {
  size_t open = 0;  // the text before it is already out
  size_t at = 0;
  while (at < text.size()) {
    const int32_t index = pass.LongestAt(text.substr(at));
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t begin = at;
    size_t end = at + token.content.size();
    at = end;
    if (token.special && !with_special) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(open, TrailingSpaceBegin(text.substr(0, begin)));
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
