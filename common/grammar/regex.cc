#include "common/grammar/regex.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/regex_parser.h"

namespace arborist {
namespace {

// Positions of a repetition that reads nothing are all alive at once. A set of that size makes every step
// slow.
constexpr size_t kMaxStatesThatMayBeSkipped = 4096;

bool MayBeEmpty(const RegexNode& node) {
  const auto child_may = [](const std::unique_ptr<RegexNode>& child) { return MayBeEmpty(*child); };
  switch (node.kind) {
    case RegexNode::Kind::kEmpty:
      return true;
    case RegexNode::Kind::kClass:
      return false;
    case RegexNode::Kind::kSequence:
      return std::all_of(node.children.begin(), node.children.end(), child_may);
    case RegexNode::Kind::kEither:
      return std::any_of(node.children.begin(), node.children.end(), child_may);
    case RegexNode::Kind::kRepeat:
      return node.least == 0 || child_may(node.children[0]);
  }
  return false;
}

class Builder {
 public:
  Builder(ByteGrammar& grammar, TextEncoding encoding) : grammar_(grammar), encoding_(encoding) {}

  // A counted repetition of what may be empty was larger than kMaxStatesThatMayBeSkipped.
  bool skips_too_much() const { return skips_too_much_; }

  ByteGrammar::Part Build(const RegexNode& node) {
    switch (node.kind) {
      case RegexNode::Kind::kEmpty:
        return grammar_.Nothing();
      case RegexNode::Kind::kClass:
        return OneOf(grammar_, node.characters, encoding_);
      case RegexNode::Kind::kSequence: {
        ByteGrammar::Part whole = grammar_.Nothing();
        for (const auto& child : node.children) {
          if (grammar_.failed()) {
            break;
          }
          whole = grammar_.Then(whole, Build(*child));
        }
        return whole;
      }
      case RegexNode::Kind::kEither: {
        std::vector<ByteGrammar::Part> parts;
        for (const auto& child : node.children) {
          if (grammar_.failed()) {
            break;
          }
          parts.push_back(Build(*child));
        }
        return parts.empty() ? grammar_.Nothing() : grammar_.Either(parts);
      }
      case RegexNode::Kind::kRepeat: {
        const size_t before = grammar_.states().size();
        const ByteGrammar::Part part = Repeat(node);
        const bool is_counted = node.least > 1 || node.most > 1;
        skips_too_much_ = skips_too_much_ || (is_counted && MayBeEmpty(*node.children[0]) &&
                                              grammar_.states().size() - before > kMaxStatesThatMayBeSkipped);
        return part;
      }
    }
    return grammar_.Nothing();
  }

 private:
  ByteGrammar::Part Repeat(const RegexNode& node) {
    const RegexNode& child = *node.children[0];
    ByteGrammar::Part whole = grammar_.Nothing();
    for (int i = 0; i < node.least && !grammar_.failed(); ++i) {
      whole = grammar_.Then(whole, Build(child));
    }
    if (node.most == RegexNode::kUnbounded) {
      return grammar_.failed() ? whole : grammar_.Then(whole, grammar_.Star(Build(child)));
    }
    if (node.most == node.least) {
      return whole;
    }
    const int32_t end = grammar_.NewState();
    for (int i = node.least; i < node.most && !grammar_.failed(); ++i) {
      grammar_.AddEpsilon(whole.end, end);
      whole = grammar_.Then(whole, Build(child));
    }
    grammar_.AddEpsilon(whole.end, end);
    return {whole.start, end};
  }

  ByteGrammar& grammar_;
  const TextEncoding encoding_;
  bool skips_too_much_ = false;
};

}  // namespace

absl::StatusOr<ByteGrammar::Part> AddRegex(ByteGrammar& grammar, std::string_view pattern, RegexMatch match,
                                           TextEncoding encoding) {
  if (pattern.size() > kMaxRegexBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("regex: ", pattern.size(), " bytes, expected at most ", kMaxRegexBytes));
  }
  ASSIGN_OR_RETURN(const std::vector<RegexAlternative> alternatives, ParseRegex(pattern));
  Builder builder(grammar, encoding);
  std::vector<ByteGrammar::Part> parts;
  const auto anything = [&] { return grammar.Star(OneOf(grammar, CodePoints::All(), encoding)); };
  for (const RegexAlternative& alternative : alternatives) {
    ByteGrammar::Part part = builder.Build(*alternative.body);
    if (match == RegexMatch::kSearch && !alternative.at_start) {
      part = grammar.Then(anything(), part);
    }
    if (match == RegexMatch::kSearch && !alternative.at_end) {
      part = grammar.Then(part, anything());
    }
    parts.push_back(part);
  }
  if (grammar.failed()) {
    return absl::InvalidArgumentError(absl::StrCat("regex: becomes more than ", ByteGrammar::kMaxStates,
                                                   " states, expected smaller repetition counts"));
  }
  if (builder.skips_too_much()) {
    return absl::InvalidArgumentError(
        absl::StrCat("regex: a counted repetition of what may be empty becomes more than ",
                     kMaxStatesThatMayBeSkipped, " states, expected x{0,n} in place of (x?){n}"));
  }
  return grammar.Either(parts);
}

}  // namespace arborist
