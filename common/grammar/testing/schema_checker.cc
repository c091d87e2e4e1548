#include "common/grammar/testing/schema_checker.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>

namespace arborist::testing {
namespace {

using Kind = JsonValue::Kind;

double Number(const JsonValue& value) { return std::strtod(value.text.c_str(), nullptr); }

bool Same(const JsonValue& a, const JsonValue& b) {
  if (a.kind != b.kind) {
    return false;
  }
  switch (a.kind) {
    case Kind::kNumber:
      return Number(a) == Number(b);
    case Kind::kArray:
      return std::equal(a.elements.begin(), a.elements.end(), b.elements.begin(), b.elements.end(), Same);
    case Kind::kObject:
      return a.members.size() == b.members.size() &&
             std::all_of(a.members.begin(), a.members.end(), [&](const auto& member) {
               const JsonValue* other = b.Find(member.first);
               return other != nullptr && Same(member.second, *other);
             });
    default:
      return a.boolean == b.boolean && a.text == b.text;
  }
}

bool IsOfType(const JsonValue& value, const std::string& type) {
  switch (value.kind) {
    case Kind::kNull:
      return type == "null";
    case Kind::kBool:
      return type == "boolean";
    case Kind::kNumber:
      return type == "number" || (type == "integer" && Number(value) == std::floor(Number(value)));
    case Kind::kString:
      return type == "string";
    case Kind::kArray:
      return type == "array";
    case Kind::kObject:
      return type == "object";
  }
  return false;
}

size_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
}

bool FitsObject(const JsonValue& value, const JsonValue& schema, const JsonValue& root) {
  const JsonValue* properties = schema.Find("properties");
  const JsonValue* additional = schema.Find("additionalProperties");
  for (const auto& [key, member] : value.members) {
    const JsonValue* mine = properties == nullptr ? nullptr : properties->Find(key);
    mine = mine == nullptr ? additional : mine;
    if (mine != nullptr && !FitsSchema(member, *mine, root)) {
      return false;
    }
  }
  const JsonValue* required = schema.Find("required");
  return required == nullptr ||
         std::all_of(required->elements.begin(), required->elements.end(),
                     [&](const JsonValue& name) { return value.Find(name.text) != nullptr; });
}

bool FitsArray(const JsonValue& value, const JsonValue& schema, const JsonValue& root) {
  const JsonValue* prefix = schema.Find("prefixItems");
  const JsonValue* items = schema.Find("items");
  for (size_t i = 0; i < value.elements.size(); ++i) {
    const JsonValue* mine = prefix != nullptr && i < prefix->elements.size() ? &prefix->elements[i] : items;
    if (mine != nullptr && !FitsSchema(value.elements[i], *mine, root)) {
      return false;
    }
  }
  return true;
}

bool FitsBounds(const JsonValue& value, const JsonValue& schema) {
  for (const auto& [key, bound] : schema.members) {
    const auto count = [&](Kind kind, size_t size, bool is_least) {
      return value.kind != kind || (is_least ? size >= Number(bound) : size <= Number(bound));
    };
    const double number = value.kind == Kind::kNumber ? Number(value) : 0;
    const bool is_number = value.kind == Kind::kNumber;
    if ((key == "minItems" && !count(Kind::kArray, value.elements.size(), true)) ||
        (key == "maxItems" && !count(Kind::kArray, value.elements.size(), false)) ||
        (key == "minLength" && !count(Kind::kString, Characters(value.text), true)) ||
        (key == "maxLength" && !count(Kind::kString, Characters(value.text), false)) ||
        (key == "minimum" && is_number && number < Number(bound)) ||
        (key == "maximum" && is_number && number > Number(bound)) ||
        (key == "exclusiveMinimum" && is_number && number <= Number(bound)) ||
        (key == "exclusiveMaximum" && is_number && number >= Number(bound)) ||
        (key == "pattern" && value.kind == Kind::kString &&
         !std::regex_search(value.text, std::regex(bound.text)))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool FitsSchema(const JsonValue& value, const JsonValue& schema, const JsonValue& root) {
  if (schema.kind == Kind::kBool) {
    return schema.boolean;
  }
  const auto fits = [&](const JsonValue& part) { return FitsSchema(value, part, root); };
  for (const auto& [key, said] : schema.members) {
    bool good = true;
    if (key == "$ref") {
      const JsonValue* at = &root;
      for (size_t begin = 2; begin < said.text.size();) {
        const size_t end = std::min(said.text.find('/', begin), said.text.size());
        at = at->Find(said.text.substr(begin, end - begin));
        begin = end + 1;
      }
      good = fits(*at);
    } else if (key == "type") {
      good = said.kind == Kind::kString
                 ? IsOfType(value, said.text)
                 : std::any_of(said.elements.begin(), said.elements.end(),
                               [&](const JsonValue& t) { return IsOfType(value, t.text); });
    } else if (key == "const") {
      good = Same(value, said);
    } else if (key == "enum") {
      good = std::any_of(said.elements.begin(), said.elements.end(),
                         [&](const JsonValue& v) { return Same(value, v); });
    } else if (key == "allOf") {
      good = std::all_of(said.elements.begin(), said.elements.end(), fits);
    } else if (key == "anyOf") {
      good = std::any_of(said.elements.begin(), said.elements.end(), fits);
    } else if (key == "oneOf") {
      good = std::count_if(said.elements.begin(), said.elements.end(), fits) == 1;
    }
    if (!good) {
      return false;
    }
  }
  return FitsBounds(value, schema) && (value.kind != Kind::kObject || FitsObject(value, schema, root)) &&
         (value.kind != Kind::kArray || FitsArray(value, schema, root));
}

}  // namespace arborist::testing
