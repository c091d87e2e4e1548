#include "tests/fuzz/grammar_walk.h"

#include <set>

#include "common/base/check.h"
#include "common/base/utf8.h"

namespace arborist::fuzz {
namespace {

constexpr int kMaxSteps = 48;

// What is wrong with the mask of `state`, token by token and from single bytes alone; empty: nothing.
std::string WrongInMask(const Constraint& constraint, const TokenVocabulary& vocabulary,
                        const Constraint::State& state, const Constraint::Mask& mask, bool grammar) {
  if (static_cast<int32_t>(mask.size()) != vocabulary.words()) {
    return "a mask covers the vocabulary";
  }
  for (int32_t token = 0; token < vocabulary.size(); ++token) {
    const bool bit = IsAllowed(mask, token);
    bool too_much = false;
    if (bit != constraint.Advance(state, TokenId{token}, &too_much).has_value() && !too_much) {
      return "the mask says what Advance says";
    }
  }
  for (int32_t token = 256; token < Raw(kSpecial); ++token) {
    std::optional<Constraint::State> next = state;
    bool too_much = false;
    for (const char byte : vocabulary.bytes(token)) {
      next =
          next.has_value() ? constraint.Advance(*next, TokenId{static_cast<uint8_t>(byte)}, &too_much) : next;
    }
    if (next.has_value() != IsAllowed(mask, token) && !too_much) {
      return "a token goes where its bytes go";
    }
  }
  if (IsAllowed(mask, Raw(kStop)) != constraint.Accepts(state)) {
    return "the text may stop where it may end";
  }
  if (IsAllowed(mask, Raw(kSpecial)) == grammar) {
    return "special tokens are forbidden under a grammar";
  }
  for (int32_t token = vocabulary.size(); token < vocabulary.words() * 32; ++token) {
    if (IsAllowed(mask, token)) {
      return "no bit beyond the vocabulary";
    }
  }
  for (int32_t word = 0; word < vocabulary.words(); ++word) {
    Constraint::Mask among(mask.size(), 0);
    among[word] = ~uint32_t{0};
    const bool is_last = word == Raw(kStop) / 32;
    const uint32_t stop_bit = is_last ? uint32_t{1} << Raw(kStop) % 32 : 0;
    const bool any = mask[word] != 0;
    const bool any_but_stops = (mask[word] & ~stop_bit) != 0;
    if (constraint.AllowsAny(state, among, false).value_or(any) != any ||
        constraint.AllowsAny(state, among, true).value_or(any_but_stops) != any_but_stops) {
      return "whether any is allowed is what the mask says";
    }
  }
  return "";
}

}  // namespace

bool IsAllowed(const Constraint::Mask& mask, int32_t token) {
  return (mask[token / 32] >> token % 32 & 1) != 0;
}

std::shared_ptr<const TokenVocabulary> SmallVocabulary() {
  static const std::shared_ptr<const TokenVocabulary> vocabulary = [] {
    std::vector<std::string> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      bytes.emplace_back(1, static_cast<char>(byte));
    }
    for (const char* text :
         {"ab", "aa", "{\"", "\":", "[[", "]}", "null", "true", "12", "\", \"", "\xC3\xA9", "\xA9\xC3"}) {
      bytes.emplace_back(text);
    }
    bytes.resize(kTokens);
    return std::make_shared<const TokenVocabulary>(std::move(bytes));
  }();
  return vocabulary;
}

bool WalkUnderMasks(const ConstraintSpec& spec, FuzzInput& input,
                    const std::function<void(const std::string&)>& accepted) {
  const std::shared_ptr<const TokenVocabulary> vocabulary = SmallVocabulary();
  ConstraintSpec whole = spec;
  whole.stop_ids = {kStop};
  const auto compiled = Constraint::Compile(whole, vocabulary);
  if (!compiled.ok()) {
    Check(compiled.status().code() == absl::StatusCode::kInvalidArgument, "a refusal is INVALID_ARGUMENT");
    Check(!compiled.status().message().empty(), "a refusal says why");
    // Else a client could not read its details.
    const std::string why(compiled.status().message());
    Check(ValidUtf8Prefix(why) == why.size(), "a refusal's words are UTF-8");
    return false;
  }
  const Constraint& constraint = **compiled;
  const bool grammar = !spec.regex.empty() || !spec.json_schema.empty();
  Constraint::State state = constraint.Start();
  std::set<std::shared_ptr<const Constraint::Mask>>
      checked;  // a state's mask is computed once: one check is enough
  std::string text;
  for (int step = 0; step < kMaxSteps; ++step) {
    const bool may_end = constraint.Accepts(state);
    const std::shared_ptr<const Constraint::Mask> mask = constraint.AllowedTokens(state);
    if (mask == nullptr) {  // too much work
      return true;
    }
    if (may_end) {
      accepted(text);
    }
    if (checked.insert(mask).second) {
      const std::string wrong = WrongInMask(constraint, *vocabulary, state, *mask, grammar);
      Check(wrong.empty(), wrong);
    }
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < vocabulary->size(); ++token) {
      if (IsAllowed(*mask, token)) {
        allowed.push_back(token);
      }
    }
    Check(!allowed.empty() || !spec.bad_words.empty(), "a grammar alone has no dead ends");
    if (allowed.empty() || input.empty()) {
      return true;
    }
    // A byte that is allowed is taken as it stands, so that inputs read like the texts they make.
    const uint8_t byte = input.Byte();
    const int32_t token = IsAllowed(*mask, byte) ? byte : allowed[byte % allowed.size()];
    if (TokenId{token} == kStop) {
      return true;
    }
    text += vocabulary->bytes(token);
    bool too_much = false;
    const std::optional<Constraint::State> next = constraint.Advance(state, TokenId{token}, &too_much);
    if (too_much) {
      return true;
    }
    state = *next;
  }
  return true;
}

}  // namespace arborist::fuzz
