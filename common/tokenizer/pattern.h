#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace arborist {

// Rewrites the regular-expression dialect of tokenizer.json into PCRE2's, so that both match the same text:
// a script is the script without its extensions, `\s` is Unicode White_Space, `\w` also a mark, `^` and `$`
// stand at lines, \uHHHH is a character, and the class forms [A&&[B]] and [A&&[^B]] become lookaheads.
// InvalidArgument names what cannot be carried over (other nested classes, `\h`, `\b`, {,n}, {n}+, options
// other than i, POSIX classes other than [:digit:] and
// [:space:]).
absl::StatusOr<std::string> TranslatePattern(std::string_view pattern);

// Half-open byte range.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

// A compiled pattern: immutable, shared by threads. What matching needs to write stands in a Matcher.
class Pattern {
 public:
  // `literal`: the pattern is plain text.
  static absl::StatusOr<Pattern> Compile(std::string_view pattern, bool literal);

 private:
  friend class Matcher;
  struct Free {
    void operator()(void* code) const;
  };
  explicit Pattern(void* code) : code_(code) {}
  std::unique_ptr<void, Free> code_;
};

// The working memory of one thread for one pattern.
class Matcher {
 public:
  explicit Matcher(const Pattern& pattern);  // `pattern` outlives the matcher

  // All matches from left to right, not overlapping; an empty match directly after a match does not count.
  // `text` is valid UTF-8. ResourceExhausted if the pattern needs more steps than the text's length
  // justifies.
  absl::Status FindAll(std::string_view text, std::vector<ByteRange>& matches);

 private:
  absl::StatusOr<bool> FindFrom(std::string_view text, size_t start, ByteRange& match);

  struct Free {
    void operator()(void* state) const;
  };
  const Pattern* pattern_;
  std::unique_ptr<void, Free> state_;
};

}  // namespace arborist
