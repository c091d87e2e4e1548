#include "common/grammar/json_value.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/grammar/excerpt.h"

namespace arborist {
namespace {

class Parser {
 public:
  Parser(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

  absl::StatusOr<JsonValue> Parse() {
    if (const size_t valid = ValidUtf8Prefix(text_); valid != text_.size()) {
      at_ = valid;
      return Error("is not UTF-8");
    }
    ASSIGN_OR_RETURN(JsonValue value, Value(0));
    Space();
    if (at_ != text_.size()) {
      return Error("stands after the value");
    }
    return value;
  }

 private:
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("byte ", at_, " (", Excerpt(text_, at_), ") ", what));
  }
  void Space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
      ++at_;
    }
  }
  bool Take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  absl::StatusOr<JsonValue> Value(int depth) {
    Space();
    JsonValue value;
    if (depth > max_depth_) {
      return Error(absl::StrCat("nests deeper than ", max_depth_));
    }
    if (Take("null")) {
      return value;
    }
    if (Take("true") || Take("false")) {
      value.kind = JsonValue::Kind::kBool;
      value.boolean = text_[at_ - 2] == 'u';
      return value;
    }
    if (at_ < text_.size() && text_[at_] == '"') {
      value.kind = JsonValue::Kind::kString;
      ASSIGN_OR_RETURN(value.text, String());
      return value;
    }
    if (Take("[")) {
      value.kind = JsonValue::Kind::kArray;
      Space();
      if (Take("]")) {
        return value;
      }
      do {
        ASSIGN_OR_RETURN(JsonValue element, Value(depth + 1));
        value.elements.push_back(std::move(element));
        Space();
      } while (Take(","));
      return Take("]") ? absl::StatusOr<JsonValue>(std::move(value)) : Error("found, expected , or ]");
    }
    if (Take("{")) {
      return Object(depth);
    }
    return Number();
  }

  absl::StatusOr<JsonValue> Object(int depth) {
    JsonValue value;
    value.kind = JsonValue::Kind::kObject;
    Space();
    if (Take("}")) {
      return value;
    }
    do {
      Space();
      ASSIGN_OR_RETURN(std::string key, String());
      Space();
      if (!Take(":")) {
        return Error("found, expected :");
      }
      if (value.Find(key) != nullptr) {
        return Error(absl::StrCat("follows the key \"", key, "\", which stands twice"));
      }
      ASSIGN_OR_RETURN(JsonValue member, Value(depth + 1));
      value.members.emplace_back(std::move(key), std::move(member));
      Space();
    } while (Take(","));
    return Take("}") ? absl::StatusOr<JsonValue>(std::move(value)) : Error("found, expected , or }");
  }

  absl::StatusOr<JsonValue> Number() {
    const size_t start = at_;
    const auto digits = [&] {
      const size_t from = at_;
      while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) {
        ++at_;
      }
      return at_ - from;
    };
    Take("-");
    const bool zero = at_ < text_.size() && text_[at_] == '0';
    const size_t whole = digits();
    bool good = whole > 0 && (!zero || whole == 1);
    if (good && Take(".")) {
      good = digits() > 0;
    }
    if (good && (Take("e") || Take("E"))) {
      if (!Take("+")) {
        Take("-");
      }
      good = digits() > 0;
    }
    if (!good) {
      at_ = start;
      return Error("is no JSON value");
    }
    JsonValue value;
    value.kind = JsonValue::Kind::kNumber;
    value.text = std::string(text_.substr(start, at_ - start));
    return value;
  }

  absl::StatusOr<uint32_t> Hex() {
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ >= text_.size() || !absl::ascii_isxdigit(text_[at_])) {
        return Error("is no hexadecimal digit");
      }
      const char digit = absl::ascii_tolower(text_[at_]);
      unit = unit * 16 + (absl::ascii_isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    return unit;
  }

  absl::StatusOr<std::string> String() {
    if (!Take("\"")) {
      return Error("found, expected a string");
    }
    std::string value;
    while (!Take("\"")) {
      if (at_ >= text_.size() || static_cast<uint8_t>(text_[at_]) < 0x20) {
        return Error("stands in a string that is not closed");
      }
      if (!Take("\\")) {
        value += text_[at_++];
        continue;
      }
      constexpr std::string_view kLetters = "\"\\/bfnrt";
      constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
      const size_t letter = at_ < text_.size() ? kLetters.find(text_[at_]) : std::string_view::npos;
      if (letter != std::string_view::npos) {
        value += kMeanings[letter];
        ++at_;
        continue;
      }
      if (!Take("u")) {
        return Error("is no escape");
      }
      ASSIGN_OR_RETURN(uint32_t character, Hex());
      if (character >= 0xD800 && character <= 0xDBFF && Take("\\u")) {
        ASSIGN_OR_RETURN(const uint32_t low, Hex());
        if (low < 0xDC00 || low > 0xDFFF) {
          return Error("follows half of a surrogate pair");
        }
        character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
      } else if (character >= 0xD800 && character <= 0xDFFF) {
        return Error("follows half of a surrogate pair");
      }
      AppendUtf8(character, value);
    }
    return value;
  }

  const std::string_view text_;
  const int max_depth_;
  size_t at_ = 0;
};

}  // namespace

JsonValue::JsonValue() = default;

const JsonValue* JsonValue::Find(std::string_view key) const {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

bool JsonValue::IsInteger() const {
  return kind == Kind::kNumber && text.find_first_of(".eE") == std::string::npos;
}

absl::StatusOr<JsonValue> ParseJsonValue(std::string_view text, int max_depth) {
  return Parser(text, max_depth).Parse();
}

bool SameJson(const JsonValue& a, const JsonValue& b) {
  return a.kind == b.kind && a.boolean == b.boolean && a.text == b.text &&
         std::equal(a.elements.begin(), a.elements.end(), b.elements.begin(), b.elements.end(), SameJson) &&
         std::equal(
             a.members.begin(), a.members.end(), b.members.begin(), b.members.end(),
             [](const auto& x, const auto& y) { return x.first == y.first && SameJson(x.second, y.second); });
}

}  // namespace arborist
