#include "common/grammar/json_text.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/utf8.h"
#include "common/grammar/code_points.h"

namespace arborist {
namespace {

constexpr int kMaxIndent = 20;

CodePoints Unescaped() { return CodePoints({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}}); }

}  // namespace

std::string QuotedJson(std::string_view text) {
  std::string quoted = "\"";
  for (const char byte : text) {
    if (byte == '"' || byte == '\\') {
      quoted += '\\';
      quoted += byte;
    } else if (static_cast<uint8_t>(byte) < 0x20) {
      quoted += byte == '\n'   ? "\\n"
                : byte == '\r' ? "\\r"
                : byte == '\t' ? "\\t"
                               : absl::StrFormat("\\u%04x", static_cast<int>(byte));
    } else {
      quoted += byte;
    }
  }
  return quoted + "\"";
}

JsonText::Part JsonText::Never() { return {grammar_.NewState(), grammar_.NewState()}; }

JsonText::Part JsonText::Space() {
  if (space_ < 0) {
    space_ = grammar_.DeclareRule();
    const int32_t end = grammar_.NewState();
    Part indent = grammar_.Bytes("\n");
    for (int i = 0; i < kMaxIndent; ++i) {
      grammar_.AddEpsilon(indent.end, end);
      indent = grammar_.Then(indent, grammar_.Bytes(" "));
    }
    grammar_.AddEpsilon(indent.end, end);
    grammar_.Define(space_, grammar_.Either({{indent.start, end}, grammar_.Bytes(" "), grammar_.Nothing()}));
  }
  return grammar_.CallOf(space_);
}

JsonText::Part JsonText::Character() {
  if (character_ < 0) {
    character_ = grammar_.DeclareRule();
    const auto hex = [&] {
      return grammar_.Either({grammar_.Range('0', '9'), grammar_.Range('a', 'f'), grammar_.Range('A', 'F')});
    };
    const auto letters = [&](std::string_view bytes) {
      std::vector<Part> parts;
      for (const char byte : bytes) {
        parts.push_back(grammar_.Range(byte, byte));
      }
      return grammar_.Either(parts);
    };
    const auto unit = [&](Part first, Part second) {
      return grammar_.Then(grammar_.Bytes("\\u"),
                           grammar_.Then(grammar_.Then(first, second), grammar_.Then(hex(), hex())));
    };
    const Part other_digit = grammar_.Either({grammar_.Range('0', '9'), letters("abcefABCEF")});  // any but d
    const Part high = unit(letters("dD"), letters("89abAB"));
    const Part low = unit(letters("dD"), letters("cdefCDEF"));
    grammar_.Define(
        character_,
        grammar_.Either({OneOf(grammar_, Unescaped(), TextEncoding::kUtf8),
                         grammar_.Then(grammar_.Bytes("\\"), letters("\"\\/bfnrt")), unit(other_digit, hex()),
                         unit(letters("dD"), grammar_.Range('0', '7')), grammar_.Then(high, low)}));
  }
  return grammar_.CallOf(character_);
}

JsonText::Part JsonText::Quoted(Part body) {
  return grammar_.Then(grammar_.Bytes("\""), grammar_.Then(body, grammar_.Bytes("\"")));
}

JsonText::Part JsonText::String(int min_length, int max_length) {
  Part body = grammar_.Nothing();
  for (int i = 0; i < min_length && !grammar_.failed(); ++i) {
    body = grammar_.Then(body, Character());
  }
  if (max_length == kUnbounded) {
    return Quoted(grammar_.Then(body, grammar_.Star(Character())));
  }
  const int32_t end = grammar_.NewState();
  for (int i = min_length; i < max_length && !grammar_.failed(); ++i) {
    grammar_.AddEpsilon(body.end, end);
    body = grammar_.Then(body, Character());
  }
  if (max_length >= min_length) {
    grammar_.AddEpsilon(body.end, end);
  }
  return Quoted({body.start, end});
}

JsonText::Part JsonText::Literal(const JsonValue& value) {
  const auto list = [&](std::string_view open, std::string_view close, size_t count, const auto& item) {
    if (count == 0) {
      return grammar_.Bytes(absl::StrCat(std::string(open), std::string(close)));
    }
    Part whole = grammar_.Then(grammar_.Bytes(open), Space());
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) {
        whole = grammar_.Then(whole, grammar_.Then(grammar_.Bytes(","), Space()));
      }
      whole = grammar_.Then(whole, item(i));
    }
    return grammar_.Then(whole, grammar_.Then(Space(), grammar_.Bytes(close)));
  };
  switch (value.kind) {
    case JsonValue::Kind::kNull:
      return grammar_.Bytes("null");
    case JsonValue::Kind::kBool:
      return grammar_.Bytes(value.boolean ? "true" : "false");
    case JsonValue::Kind::kNumber:
      return grammar_.Bytes(value.text);
    case JsonValue::Kind::kString:
      return grammar_.Bytes(QuotedJson(value.text));
    case JsonValue::Kind::kArray:
      return list("[", "]", value.elements.size(), [&](size_t i) { return Literal(value.elements[i]); });
    case JsonValue::Kind::kObject:
      return list("{", "}", value.members.size(), [&](size_t i) {
        const auto& [key, member] = value.members[i];
        return grammar_.Then(grammar_.Bytes(absl::StrCat(QuotedJson(key), ":")),
                             grammar_.Then(Space(), Literal(member)));
      });
  }
  return Never();
}

JsonText::Part JsonText::Array(const std::vector<int32_t>& first, int32_t rest, int min_items,
                               int max_items) {
  const auto known = static_cast<int>(first.size());
  const auto item = [&](int i) { return i < known ? first[i] : rest; };
  const auto separator = [&] { return grammar_.Then(grammar_.Bytes(","), Space()); };
  const Part whole = Never();
  if (min_items == 0) {
    const Part none = grammar_.Bytes("[]");
    grammar_.AddEpsilon(whole.start, none.start);
    grammar_.AddEpsilon(none.end, whole.end);
  }
  const Part open = grammar_.Then(grammar_.Bytes("["), Space());
  grammar_.AddEpsilon(whole.start, open.start);
  const Part close = grammar_.Then(Space(), grammar_.Bytes("]"));
  grammar_.AddEpsilon(close.end, whole.end);
  // Counted one by one as far as position or number matters; then a loop, if there is no bound above.
  const int counted = max_items != kUnbounded ? max_items : std::max({min_items, known, 1});
  int32_t at = open.end;
  for (int i = 0; i < counted && item(i) >= 0 && !grammar_.failed(); ++i) {
    if (i > 0) {
      const Part comma = separator();
      grammar_.AddEpsilon(at, comma.start);
      at = comma.end;
    }
    const Part element = grammar_.CallOf(item(i));
    grammar_.AddEpsilon(at, element.start);
    at = element.end;
    if (i + 1 >= min_items) {
      grammar_.AddEpsilon(at, close.start);
    }
    if (max_items == kUnbounded && i + 1 == counted && rest >= 0) {
      const Part more = grammar_.Then(separator(), grammar_.CallOf(rest));
      grammar_.AddEpsilon(at, more.start);
      grammar_.AddEpsilon(more.end, at);
    }
  }
  return whole;
}

JsonText::Part JsonText::Member(Part key, int32_t rule) {
  return grammar_.Then(key,
                       grammar_.Then(grammar_.Then(grammar_.Bytes(":"), Space()), grammar_.CallOf(rule)));
}

// A quoted key without escapes that is no property's: a trie of the names, left with any other character.
JsonText::Part JsonText::OtherKey(const std::vector<Property>& properties) {
  struct Node {
    int32_t state;
    bool is_name = false;
    std::map<uint32_t, size_t> children = {};
  };
  std::vector<Node> trie = {{grammar_.NewState()}};
  for (const Property& property : properties) {
    size_t at = 0;
    for (std::string_view rest = property.name; !rest.empty();) {
      const Utf8Step character = NextUtf8(rest);
      rest.remove_prefix(character.bytes);
      const auto [child, is_new] = trie[at].children.try_emplace(character.character, trie.size());
      at = child->second;
      if (is_new) {
        trie.push_back({grammar_.NewState()});
      }
    }
    trie[at].is_name = true;
  }
  const Part body = {trie[0].state, grammar_.NewState()};
  const Part other = grammar_.Star(OneOf(grammar_, Unescaped(), TextEncoding::kUtf8));
  grammar_.AddEpsilon(other.end, body.end);
  for (const Node& node : trie) {
    if (grammar_.failed()) {
      break;
    }
    if (!node.is_name) {
      grammar_.AddEpsilon(node.state, body.end);
    }
    std::vector<CodePoints::Range> taken;
    for (const auto& [character, child] : node.children) {
      taken.push_back({character, character});
      if (Unescaped().Contains(character)) {
        const Part one = OneOf(grammar_, CodePoints({{character, character}}), TextEncoding::kUtf8);
        grammar_.AddEpsilon(node.state, one.start);
        grammar_.AddEpsilon(one.end, trie[child].state);
      }
    }
    const Part leave =
        OneOf(grammar_, Unescaped().Without(CodePoints(std::move(taken))), TextEncoding::kUtf8);
    grammar_.AddEpsilon(node.state, leave.start);
    grammar_.AddEpsilon(leave.end, other.start);
  }
  return Quoted(body);
}

JsonText::Part JsonText::Object(const std::vector<Property>& properties, int32_t additional) {
  const Part whole = Never();
  const Part open = grammar_.Then(grammar_.Bytes("{"), Space());
  grammar_.AddEpsilon(whole.start, open.start);
  if (std::none_of(properties.begin(), properties.end(), [](const Property& p) { return p.required; })) {
    const Part none = grammar_.Bytes("{}");
    grammar_.AddEpsilon(whole.start, none.start);
    grammar_.AddEpsilon(none.end, whole.end);
  }
  // Two rows of states between the properties: nothing was written yet, or something was and a comma comes
  // next.
  int32_t none = open.end;
  int32_t some = -1;
  const auto write = [&](int32_t rule, int32_t to) {
    const Part first = grammar_.CallOf(rule);
    grammar_.AddEpsilon(none, first.start);
    grammar_.AddEpsilon(first.end, to);
    if (some >= 0) {
      const Part next = grammar_.Then(grammar_.Then(grammar_.Bytes(","), Space()), grammar_.CallOf(rule));
      grammar_.AddEpsilon(some, next.start);
      grammar_.AddEpsilon(next.end, to);
    }
  };
  for (const Property& property : properties) {
    if (grammar_.failed()) {
      break;
    }
    const int32_t member = grammar_.DeclareRule();
    grammar_.Define(member, Member(grammar_.Bytes(QuotedJson(property.name)), property.rule));
    const int32_t written = grammar_.NewState();
    write(member, written);
    const int32_t without = grammar_.NewState();
    if (!property.required) {
      grammar_.AddEpsilon(none, without);
      if (some >= 0) {
        grammar_.AddEpsilon(some, written);
      }
    }
    none = without;
    some = written;
  }
  if (additional >= 0 && !grammar_.failed()) {
    const int32_t member = grammar_.DeclareRule();
    grammar_.Define(member, Member(OtherKey(properties), additional));
    const int32_t last = grammar_.NewState();
    if (some >= 0) {
      grammar_.AddEpsilon(some, last);
    }
    some = last;
    write(member, last);
  }
  if (some >= 0) {
    const Part close = grammar_.Then(Space(), grammar_.Bytes("}"));
    grammar_.AddEpsilon(some, close.start);
    grammar_.AddEpsilon(close.end, whole.end);
  }
  return whole;
}

int32_t JsonText::Any() {
  if (any_ < 0) {
    any_ = grammar_.DeclareRule();
    grammar_.Define(any_, grammar_.Either({Object({}, any_), Array({}, any_, 0, kUnbounded),
                                           String(0, kUnbounded), Number(), grammar_.Bytes("true"),
                                           grammar_.Bytes("false"), grammar_.Bytes("null")}));
  }
  return any_;
}

}  // namespace arborist
