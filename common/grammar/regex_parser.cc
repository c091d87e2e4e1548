#include "common/grammar/regex_parser.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/grammar/excerpt.h"

namespace arborist {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxCount = 100'000;

using NodePtr = std::unique_ptr<RegexNode>;

NodePtr Make(RegexNode::Kind kind) {
  auto node = std::make_unique<RegexNode>();
  node->kind = kind;
  return node;
}

NodePtr MakeClass(CodePoints characters) {
  NodePtr node = Make(RegexNode::Kind::kClass);
  node->characters = std::move(characters);
  return node;
}

CodePoints One(uint32_t character) { return CodePoints({{character, character}}); }

CodePoints LineEnds() { return CodePoints({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

std::optional<CodePoints> Shorthand(char letter) {
  std::optional<CodePoints> set;
  switch (absl::ascii_tolower(letter)) {
    case 'd':
      set = CodePoints({{'0', '9'}});
      break;
    case 'w':
      set = CodePoints({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
      break;
    case 's':
      set = CodePoints({{'\t', '\r'},
                        {' ', ' '},
                        {0xA0, 0xA0},
                        {0x1680, 0x1680},
                        {0x2000, 0x200A},
                        {0x2028, 0x2029},
                        {0x202F, 0x202F},
                        {0x205F, 0x205F},
                        {0x3000, 0x3000},
                        {0xFEFF, 0xFEFF}});
      break;
    default:
      return std::nullopt;
  }
  return absl::ascii_isupper(letter) ? set->Complement() : *set;
}

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::vector<RegexAlternative>> Parse() {
    const size_t valid = ValidUtf8Prefix(pattern_);
    if (valid != pattern_.size()) {
      return Error(valid, "is not UTF-8");
    }
    std::vector<RegexAlternative> alternatives;
    do {
      RegexAlternative alternative;
      alternative.at_start = Take('^');
      ASSIGN_OR_RETURN(alternative.body, Sequence(0));
      alternative.at_end = Take('$');
      alternatives.push_back(std::move(alternative));
    } while (Take('|'));
    if (!AtEnd()) {
      return Error(at_, Peek() == ')' ? "closes no group" : "stands after $");
    }
    return alternatives;
  }

 private:
  bool AtEnd() const { return at_ >= pattern_.size(); }
  char Peek() const { return pattern_[at_]; }
  bool Take(char expected) {
    if (AtEnd() || Peek() != expected) {
      return false;
    }
    ++at_;
    return true;
  }
  absl::Status Error(size_t position, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("regex: byte ", position, " (", Excerpt(pattern_, position), ") ", what));
  }

  absl::StatusOr<NodePtr> Either(int depth) {
    NodePtr either = Make(RegexNode::Kind::kEither);
    do {
      ASSIGN_OR_RETURN(NodePtr sequence, Sequence(depth));
      either->children.push_back(std::move(sequence));
    } while (Take('|'));
    return either;
  }

  absl::StatusOr<NodePtr> Sequence(int depth) {
    NodePtr sequence = Make(RegexNode::Kind::kSequence);
    while (!AtEnd() && Peek() != '|' && Peek() != ')' && !(Peek() == '$' && depth == 0)) {
      ASSIGN_OR_RETURN(NodePtr atom, Atom(depth));
      ASSIGN_OR_RETURN(atom, Repeated(std::move(atom)));
      sequence->children.push_back(std::move(atom));
    }
    return sequence;
  }

  absl::StatusOr<NodePtr> Atom(int depth) {
    const size_t start = at_;
    switch (Peek()) {
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '.':
        ++at_;
        return MakeClass(LineEnds().Complement());
      case '^':
      case '$':
        return Error(start, "is an anchor, expected only at the ends of an alternative of the top level");
      case '*':
      case '+':
      case '?':
        return Error(start, "repeats nothing");
      case '{': {
        int least = 0;
        int most = 0;
        if (Counts(least, most)) {
          return Error(start, "repeats nothing");
        }
        at_ = start + 1;
        if (Take(',')) {  // Python's {,n}; elsewhere it is plain text
          while (!AtEnd() && absl::ascii_isdigit(Peek())) {
            ++at_;
          }
          if (Take('}')) {
            return Error(start, "is a repetition without its least count, expected {0,n}");
          }
          at_ = start + 1;
        }
        return MakeClass(One('{'));
      }
      case '\\': {
        if (start + 1 < pattern_.size()) {
          if (std::optional<CodePoints> set = Shorthand(pattern_[start + 1])) {
            at_ += 2;
            return MakeClass(*std::move(set));
          }
        }
        ASSIGN_OR_RETURN(const uint32_t character, Escape(false));
        return MakeClass(One(character));
      }
      default:
        return MakeClass(One(Character()));
    }
  }

  uint32_t Character() {
    const Utf8Step step = NextUtf8(pattern_.substr(at_));
    at_ += step.bytes;
    return step.character;
  }

  absl::StatusOr<NodePtr> Group(int depth) {
    const size_t start = at_++;
    if (depth >= kMaxDepth) {
      return Error(start, absl::StrCat("nests deeper than ", kMaxDepth, " groups"));
    }
    if (Take('?')) {
      if (Take('<') || (Take('P') && Take('<'))) {
        const size_t name = at_;
        while (!AtEnd() && (absl::ascii_isalnum(Peek()) || Peek() == '_')) {
          ++at_;
        }
        if (at_ == name || !Take('>')) {
          return Error(start, "is not supported, expected a group, (?:...) or (?<name>...)");
        }
      } else if (!Take(':')) {
        return Error(start, "is not supported, expected a group, (?:...) or (?<name>...)");
      }
    }
    ASSIGN_OR_RETURN(NodePtr body, Either(depth + 1));
    if (!Take(')')) {
      return Error(start, "is a group that is not closed");
    }
    return body;
  }

  // {m}, {m,} or {m,n} at the current place; otherwise false and the place is undefined.
  bool Counts(int& least, int& most) {
    const auto number = [&](int& value) {
      const size_t from = at_;
      int64_t sum = 0;
      while (!AtEnd() && absl::ascii_isdigit(Peek())) {
        sum = std::min<int64_t>(sum * 10 + (Peek() - '0'), kMaxCount + 1);
        ++at_;
      }
      value = static_cast<int>(sum);
      return at_ > from;
    };
    if (!Take('{') || !number(least)) {
      return false;
    }
    most = least;
    if (Take(',')) {
      if (!number(most)) {
        most = RegexNode::kUnbounded;
      }
    }
    return Take('}');
  }

  absl::StatusOr<NodePtr> Repeated(NodePtr atom) {
    const size_t start = at_;
    int least = 0;
    int most = RegexNode::kUnbounded;
    if (Take('*')) {
    } else if (Take('+')) {
      least = 1;
    } else if (Take('?')) {
      most = 1;
    } else if (AtEnd() || Peek() != '{' || !Counts(least, most)) {
      at_ = start;
      return atom;
    }
    if (least > kMaxCount || most > kMaxCount) {
      return Error(start, absl::StrCat("repeats too often, expected at most ", kMaxCount));
    }
    if (most != RegexNode::kUnbounded && most < least) {
      return Error(start, "has its bounds out of order");
    }
    Take('?');  // lazy: the same language
    if (!AtEnd()) {
      int unused_least = 0;
      int unused_most = 0;
      const size_t next = at_;
      if (Peek() == '*' || Peek() == '+' || Peek() == '?' ||
          (Peek() == '{' && Counts(unused_least, unused_most))) {
        return Error(next, "repeats a repetition; expected a group around it");
      }
      at_ = next;
    }
    NodePtr repeat = Make(RegexNode::Kind::kRepeat);
    repeat->least = least;
    repeat->most = most;
    repeat->children.push_back(std::move(atom));
    return repeat;
  }

  absl::StatusOr<uint32_t> Hex(size_t start, size_t least, size_t most) {
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < most && !AtEnd() && absl::ascii_isxdigit(Peek()); ++digits, ++at_) {
      const char digit = absl::ascii_tolower(Peek());
      value = value * 16 + (absl::ascii_isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    if (digits < least) {
      return Error(start, "lacks hexadecimal digits");
    }
    return value;
  }

  // A backslash and what it escapes, one character.
  absl::StatusOr<uint32_t> Escape(bool in_class) {
    const size_t start = at_++;
    if (AtEnd()) {
      return Error(start, "escapes nothing");
    }
    const char letter = Peek();
    if (!absl::ascii_isalnum(letter)) {
      return Character();
    }
    ++at_;
    uint32_t character = 0;
    switch (letter) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case '0':
        if (!AtEnd() && absl::ascii_isdigit(Peek())) {
          return Error(start, "is an octal escape, expected \\xHH");
        }
        return 0;
      case 'x': {
        ASSIGN_OR_RETURN(character, Hex(start, 2, 2));
        return character;
      }
      case 'u': {
        const bool braces = Take('{');
        ASSIGN_OR_RETURN(character, Hex(start, braces ? 1 : 4, braces ? 6 : 4));
        if ((braces && !Take('}')) || character > 0x10FFFF) {
          return Error(start, "is no character");
        }
        if (character >= 0xD800 && character <= 0xDBFF && pattern_.substr(at_, 2) == "\\u") {
          at_ += 2;
          ASSIGN_OR_RETURN(const uint32_t low, Hex(start, 4, 4));
          if (low >= 0xDC00 && low <= 0xDFFF) {
            return 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
          }
        }
        if (character >= 0xD800 && character <= 0xDFFF) {
          return Error(start, "is half of a surrogate pair");
        }
        return character;
      }
      case 'b':
        if (in_class) {
          return '\b';
        }
        [[fallthrough]];
      default:
        return Error(start, "is an escape that is not supported");
    }
  }

  absl::StatusOr<NodePtr> Class() {
    const size_t start = at_++;
    const bool negated = Take('^');
    std::vector<CodePoints::Range> ranges;
    CodePoints sets;
    while (true) {
      if (AtEnd()) {
        return Error(start, "is a class that is not closed");
      }
      if (Take(']')) {
        break;
      }
      const size_t item = at_;
      if (pattern_.substr(at_, 2) == "[:") {
        return Error(item, "is a POSIX class, expected \\d, \\w, \\s or ranges");
      }
      if (Peek() == '\\' && at_ + 1 < pattern_.size()) {
        if (const std::optional<CodePoints> set = Shorthand(pattern_[at_ + 1])) {
          at_ += 2;
          if (pattern_.size() > at_ + 1 && Peek() == '-' && pattern_[at_ + 1] != ']') {
            return Error(item, "begins a range with a set");
          }
          sets = sets.With(*set);
          continue;
        }
      }
      ASSIGN_OR_RETURN(const uint32_t low, ClassCharacter());
      uint32_t high = low;
      if (pattern_.size() > at_ + 1 && Peek() == '-' && pattern_[at_ + 1] != ']') {
        ++at_;
        if (Peek() == '\\' && at_ + 1 < pattern_.size() && Shorthand(pattern_[at_ + 1])) {
          return Error(item, "ends a range with a set");
        }
        ASSIGN_OR_RETURN(high, ClassCharacter());
      }
      if (high < low) {
        return Error(item, "is a range out of order");
      }
      ranges.push_back({low, high});
    }
    const CodePoints all = CodePoints(std::move(ranges)).With(sets);
    return MakeClass(negated ? all.Complement() : all);
  }

  absl::StatusOr<uint32_t> ClassCharacter() { return Peek() == '\\' ? Escape(true) : Character(); }

  const std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<RegexAlternative>> ParseRegex(std::string_view pattern) {
  return Parser(pattern).Parse();
}

}  // namespace arborist
