#include "common/grammar/schema_words.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/regex.h"
#include "common/grammar/schema_merge.h"
#include "common/grammar/string_format.h"

namespace arborist {
namespace {

using Part = ByteGrammar::Part;

// Keywords by the type that they speak of.
struct Keyword {
  std::string_view name;
  std::string_view type;  // "": of every type
};
constexpr Keyword kKeywords[] = {{"type", ""},
                                 {"enum", ""},
                                 {"const", ""},
                                 {"$ref", ""},
                                 {"anyOf", ""},
                                 {"oneOf", ""},
                                 {"allOf", ""},
                                 {"properties", "object"},
                                 {"required", "object"},
                                 {"additionalProperties", "object"},
                                 {"items", "array"},
                                 {"prefixItems", "array"},
                                 {"minItems", "array"},
                                 {"maxItems", "array"},
                                 {"minLength", "string"},
                                 {"maxLength", "string"},
                                 {"pattern", "string"},
                                 {"format", "string"},
                                 {"minimum", "number"},
                                 {"maximum", "number"},
                                 {"exclusiveMinimum", "number"},
                                 {"exclusiveMaximum", "number"}};

}  // namespace

absl::Status SchemaError(const std::string& pointer, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("json_schema: ", pointer, ": ", what));
}

absl::Status CheckSchemaKeywords(const JsonValue& schema, const std::string& pointer) {
  for (const auto& [key, value] : schema.members) {
    const bool is_known = std::any_of(std::begin(kKeywords), std::end(kKeywords),
                                      [&, &name = key](const Keyword& known) { return known.name == name; });
    if (!is_known && !IsAnnotation(key)) {
      if (key == "uniqueItems" && value.kind == JsonValue::Kind::kBool && !value.boolean) {
        continue;
      }
      return SchemaError(absl::StrCat(pointer, "/", key), "is not supported");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const JsonValue*> ResolveSchema(const JsonValue& root, const std::string& pointer) {
  if (pointer.empty() || pointer[0] != '#' || (pointer.size() > 1 && pointer[1] != '/')) {
    return SchemaError(pointer, "is no reference within the schema, expected #/...");
  }
  const JsonValue* at = &root;
  for (size_t begin = 2; begin <= pointer.size();) {
    const size_t end = std::min(pointer.find('/', begin), pointer.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1')) {
        key += pointer[++i] == '0' ? '~' : '/';
      } else {
        key += pointer[i];
      }
    }
    size_t index = 0;
    if (at->kind == JsonValue::Kind::kArray && absl::SimpleAtoi(key, &index) && index < at->elements.size()) {
      at = &at->elements[index];
    } else {
      at = at->Find(key);
    }
    if (at == nullptr) {
      return SchemaError(pointer, "refers to nothing");
    }
    begin = end + 1;
  }
  return at;
}

absl::StatusOr<std::vector<std::string>> SchemaTypes(const JsonValue& schema, const std::string& pointer) {
  static const std::vector<std::string> kTypes = {"object",  "array",   "string", "number",
                                                  "integer", "boolean", "null"};
  std::vector<std::string> types;
  if (const JsonValue* type = schema.Find("type"); type != nullptr) {
    std::vector<const JsonValue*> entries = {type};
    if (type->kind == JsonValue::Kind::kArray) {
      entries.clear();
      for (const JsonValue& element : type->elements) {
        entries.push_back(&element);
      }
    }
    for (const JsonValue* entry : entries) {
      if (entry->kind != JsonValue::Kind::kString ||
          std::find(kTypes.begin(), kTypes.end(), entry->text) == kTypes.end()) {
        return SchemaError(
            absl::StrCat(pointer, "/type"),
            "expected object, array, string, number, integer, boolean, null or a list of them");
      }
      types.push_back(entry->text);
    }
    return types;
  }
  for (const Keyword& keyword : kKeywords) {  // no type: those that the schema speaks of
    if (!keyword.type.empty() && schema.Find(keyword.name) != nullptr &&
        std::find(types.begin(), types.end(), std::string(keyword.type)) == types.end()) {
      types.emplace_back(keyword.type);
    }
  }
  return types;
}

absl::StatusOr<int> SchemaCount(const JsonValue& schema, const char* keyword, const std::string& pointer,
                                int fallback) {
  const JsonValue* value = schema.Find(keyword);
  int count = fallback;
  if (value != nullptr && (!value->IsInteger() || !absl::SimpleAtoi(value->text, &count) || count < 0 ||
                           count > static_cast<int>(ByteGrammar::kMaxStates))) {
    return SchemaError(absl::StrCat(pointer, "/", keyword),
                       absl::StrCat("expected an integer from 0 to ", ByteGrammar::kMaxStates));
  }
  return count;
}

absl::StatusOr<Part> SchemaString(ByteGrammar& grammar, JsonText& text, const JsonValue& schema,
                                  const std::string& pointer) {
  ASSIGN_OR_RETURN(const int least, SchemaCount(schema, "minLength", pointer, 0));
  ASSIGN_OR_RETURN(const int most, SchemaCount(schema, "maxLength", pointer, JsonText::kUnbounded));
  const JsonValue* pattern = schema.Find("pattern");
  const JsonValue* format = schema.Find("format");
  if (pattern == nullptr && format == nullptr) {
    return text.String(least, most);
  }
  const std::string place = absl::StrCat(pointer, pattern != nullptr ? "/pattern" : "/format");
  if ((pattern != nullptr && format != nullptr) || least != 0 || most != JsonText::kUnbounded) {
    return SchemaError(place, "stands beside another bound on the string, which is not supported");
  }
  const JsonValue& value = pattern != nullptr ? *pattern : *format;
  if (value.kind != JsonValue::Kind::kString) {
    return SchemaError(place, "expected a string");
  }
  std::string_view regex = value.text;
  if (format != nullptr) {
    const auto known = RegexOfFormat(value.text);
    if (!known.has_value()) {
      return SchemaError(
          place,
          absl::StrCat("\"", value.text,
                       "\" is not supported, expected date, time, date-time, uuid, ipv4, email or uri"));
    }
    regex = *known;
  }
  const auto body = AddRegex(grammar, regex, format != nullptr ? RegexMatch::kWhole : RegexMatch::kSearch,
                             TextEncoding::kJsonString);
  if (!body.ok()) {
    return SchemaError(place, std::string(body.status().message()));
  }
  return text.Quoted(*body);
}

absl::StatusOr<Part> SchemaNumber(JsonText& text, const JsonValue& schema, const std::string& pointer,
                                  bool integer) {
  int64_t low = -JsonText::kLargestInteger;
  int64_t high = JsonText::kLargestInteger;
  bool is_bounded = false;
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const JsonValue* value = schema.Find(keyword);
    if (value == nullptr) {
      continue;
    }
    is_bounded = true;
    const bool is_exclusive = keyword[0] == 'e';
    const std::string place = absl::StrCat(pointer, "/", keyword);
    int64_t bound = 0;
    if (!value->IsInteger() || !absl::SimpleAtoi(value->text, &bound) || bound > JsonText::kLargestInteger ||
        bound < -JsonText::kLargestInteger) {
      return SchemaError(place, "expected an integer of at most 18 digits");
    }
    if (is_exclusive && !integer) {
      return SchemaError(place, "is supported for integers only");
    }
    const bool is_minimum = std::string_view(keyword).find("inimum") != std::string_view::npos;
    if (is_minimum) {
      low = std::max(low, bound + (is_exclusive ? 1 : 0));
    } else {
      high = std::min(high, bound - (is_exclusive ? 1 : 0));
    }
  }
  if (!is_bounded) {
    return integer ? text.Integer() : text.Number();
  }
  return integer ? text.Integer(low, high) : text.Number(low, high);
}

}  // namespace arborist
