#include "common/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/grammar/json_text.h"
#include "common/grammar/json_value.h"
#include "common/grammar/schema_merge.h"
#include "common/grammar/schema_words.h"

namespace arborist {
namespace {

using Part = ByteGrammar::Part;

constexpr int kMaxDepth = 64;      // of the schema's text, and of schemas merged into one another
constexpr int kMaxMerges = 2'000;  // allOf, and anyOf beside other keywords

class Compiler {
 public:
  Compiler(ByteGrammar& grammar, const JsonValue& root) : grammar_(grammar), text_(grammar), root_(root) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(const int32_t rule, RuleAt("#"));
    grammar_.set_root(rule);
    // Definitions are built in the order of their first mention, not inside one another: no recursion to
    // bound.
    for (size_t i = 0; i < pending_.size() && !grammar_.failed(); ++i) {
      const auto [pointer, target, defined] = pending_[i];
      ASSIGN_OR_RETURN(const Part body, Build(*target, pointer, 0));
      grammar_.Define(defined, body);
    }
    return absl::OkStatus();
  }

 private:
  struct Pending {
    std::string pointer;
    const JsonValue* schema;
    int32_t rule;
  };

  absl::StatusOr<int32_t> RuleAt(const std::string& pointer) {
    const auto [found, is_new] = rules_.try_emplace(pointer, -1);
    if (is_new) {
      ASSIGN_OR_RETURN(const JsonValue* schema, ResolveSchema(root_, pointer));
      found->second = grammar_.DeclareRule();
      pending_.push_back({pointer, schema, found->second});
    }
    return found->second;
  }

  absl::StatusOr<int32_t> RuleOf(const JsonValue& schema, const std::string& pointer, int depth) {
    ASSIGN_OR_RETURN(const Part body, Build(schema, pointer, depth));
    const int32_t rule = grammar_.DeclareRule();
    grammar_.Define(rule, body);
    return rule;
  }

  absl::StatusOr<Part> Build(const JsonValue& schema, const std::string& pointer, int depth) {
    if (depth > kMaxDepth) {
      return SchemaError(pointer, absl::StrCat("nests deeper than ", kMaxDepth));
    }
    if (schema.kind == JsonValue::Kind::kBool) {
      return schema.boolean ? grammar_.CallOf(text_.Any()) : text_.Never();
    }
    if (!schema.IsObject()) {
      return SchemaError(pointer, "is no schema, expected an object, true or false");
    }
    RETURN_IF_ERROR(CheckSchemaKeywords(schema, pointer));
    if (const JsonValue* reference = schema.Find("$ref"); reference != nullptr) {
      if (!IsAlone(schema, "$ref")) {
        ASSIGN_OR_RETURN(const JsonValue* target, ResolveSchema(root_, reference->text));
        return BuildMerged(Without(schema, "$ref"), *target, pointer, depth);
      }
      ASSIGN_OR_RETURN(const int32_t rule, RuleAt(reference->text));
      return grammar_.CallOf(rule);
    }
    if (const JsonValue* all = schema.Find("allOf"); all != nullptr) {
      return AllOf(schema, *all, pointer, depth);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (const JsonValue* branches = schema.Find(keyword); branches != nullptr) {
        return Branches(schema, keyword, *branches, absl::StrCat(pointer, "/", keyword), depth);
      }
    }
    if (schema.Find("enum") != nullptr || schema.Find("const") != nullptr) {
      return Constants(schema, pointer);
    }
    return ByType(schema, pointer, depth);
  }

  static bool IsAlone(const JsonValue& schema, std::string_view keyword) {
    return std::all_of(schema.members.begin(), schema.members.end(), [&](const auto& member) {
      return member.first == keyword || IsAnnotation(member.first);
    });
  }

  absl::StatusOr<Part> BuildMerged(const JsonValue& a, const JsonValue& b, const std::string& pointer,
                                   int depth) {
    if (++merges_ > kMaxMerges) {
      return SchemaError(pointer, absl::StrCat("needs more than ", kMaxMerges, " combinations of schemas"));
    }
    ASSIGN_OR_RETURN(const JsonValue merged, MergeSchemas(a, b, pointer));
    return Build(merged, pointer, depth + 1);
  }

  // What stands behind a reference, as long as that is all that is said.
  absl::StatusOr<const JsonValue*> Target(const JsonValue* schema) const {
    for (int i = 0; i < kMaxDepth && schema->IsObject() && schema->Find("$ref") != nullptr; ++i) {
      if (!IsAlone(*schema, "$ref")) {
        break;
      }
      ASSIGN_OR_RETURN(schema, ResolveSchema(root_, schema->Find("$ref")->text));
    }
    return schema;
  }

  absl::StatusOr<Part> AllOf(const JsonValue& schema, const JsonValue& all, const std::string& pointer,
                             int depth) {
    if (all.elements.empty()) {
      return SchemaError(absl::StrCat(pointer, "/allOf"), "expected a list of schemas, not empty");
    }
    JsonValue whole = Without(schema, "allOf");
    for (size_t i = 0; i < all.elements.size(); ++i) {
      if (++merges_ > kMaxMerges) {
        return SchemaError(pointer, absl::StrCat("needs more than ", kMaxMerges, " combinations of schemas"));
      }
      ASSIGN_OR_RETURN(const JsonValue* part, Target(&all.elements[i]));
      ASSIGN_OR_RETURN(whole, MergeSchemas(whole, *part, absl::StrCat(pointer, "/allOf/", i)));
    }
    return Build(whole, pointer, depth + 1);
  }

  absl::StatusOr<Part> Branches(const JsonValue& schema, const std::string& keyword,
                                const JsonValue& branches, const std::string& pointer, int depth) {
    if (branches.elements.empty()) {
      return SchemaError(pointer, "expected a list of schemas, not empty");
    }
    std::vector<const JsonValue*> targets;
    for (const JsonValue& branch : branches.elements) {
      ASSIGN_OR_RETURN(const JsonValue* target, Target(&branch));
      targets.push_back(target);
    }
    if (keyword == "oneOf") {
      if (const auto overlap = FindOverlap(targets); overlap.has_value()) {
        return SchemaError(pointer,
                           absl::StrCat("entries ", overlap->first, " and ", overlap->second,
                                        " may both fit, which is not supported; expected anyOf, other types "
                                        "or a required property with other string constants"));
      }
    }
    const JsonValue rest = Without(schema, keyword);
    const bool is_alone = IsAlone(schema, keyword);
    std::vector<Part> parts;
    for (size_t i = 0; i < targets.size() && !grammar_.failed(); ++i) {
      const std::string place = absl::StrCat(pointer, "/", i);
      ASSIGN_OR_RETURN(const Part part, is_alone ? Build(branches.elements[i], place, depth + 1)
                                                 : BuildMerged(rest, *targets[i], place, depth));
      parts.push_back(part);
    }
    return parts.empty() ? text_.Never() : grammar_.Either(parts);
  }

  absl::StatusOr<Part> Constants(const JsonValue& schema, const std::string& pointer) {
    for (const auto& member : schema.members) {
      if (member.first != "enum" && member.first != "const" && member.first != "type" &&
          !IsAnnotation(member.first)) {
        return SchemaError(absl::StrCat(pointer, "/", member.first),
                           "stands beside enum or const, which is not supported");
      }
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> types, SchemaTypes(schema, pointer));
    const JsonValue* one = schema.Find("const");
    const JsonValue* list = schema.Find("enum");
    if (one != nullptr && list != nullptr) {
      return SchemaError(pointer, "has both enum and const, which is not supported");
    }
    if (list != nullptr && list->elements.empty()) {
      return SchemaError(absl::StrCat(pointer, "/enum"), "expected a list of values, not empty");
    }
    std::vector<Part> parts;
    const auto add = [&](const JsonValue& value) {
      constexpr const char* kNames[] = {"null", "boolean", "number", "string", "array", "object"};
      const bool fits =
          schema.Find("type") == nullptr || std::any_of(types.begin(), types.end(), [&](const auto& type) {
            return type == kNames[static_cast<int>(value.kind)] || (type == "integer" && value.IsInteger());
          });
      if (fits && !grammar_.failed()) {
        parts.push_back(text_.Literal(value));
      }
    };
    if (one != nullptr) {
      add(*one);
    } else {
      std::for_each(list->elements.begin(), list->elements.end(), add);
    }
    return parts.empty() ? text_.Never() : grammar_.Either(parts);
  }

  absl::StatusOr<Part> ByType(const JsonValue& schema, const std::string& pointer, int depth);
  absl::StatusOr<Part> Object(const JsonValue& schema, const std::string& pointer, int depth);
  absl::StatusOr<Part> Array(const JsonValue& schema, const std::string& pointer, int depth);

  ByteGrammar& grammar_;
  JsonText text_;
  const JsonValue& root_;
  std::map<std::string, int32_t> rules_;  // by JSON pointer
  std::deque<Pending> pending_;
  int merges_ = 0;
};

absl::StatusOr<Part> Compiler::ByType(const JsonValue& schema, const std::string& pointer, int depth) {
  ASSIGN_OR_RETURN(const std::vector<std::string> types, SchemaTypes(schema, pointer));
  if (types.empty()) {
    return schema.Find("type") == nullptr ? grammar_.CallOf(text_.Any()) : text_.Never();
  }
  std::vector<Part> parts;
  for (const std::string& type : types) {
    absl::StatusOr<Part> part = text_.Never();
    if (type == "object") {
      part = Object(schema, pointer, depth);
    } else if (type == "array") {
      part = Array(schema, pointer, depth);
    } else if (type == "string") {
      part = SchemaString(grammar_, text_, schema, pointer);
    } else if (type == "null") {
      part = grammar_.Bytes("null");
    } else if (type == "boolean") {
      part = grammar_.Either({grammar_.Bytes("true"), grammar_.Bytes("false")});
    } else {
      part = SchemaNumber(text_, schema, pointer, type == "integer");
    }
    RETURN_IF_ERROR(part.status());
    parts.push_back(*part);
  }
  return grammar_.Either(parts);
}

absl::StatusOr<Part> Compiler::Object(const JsonValue& schema, const std::string& pointer, int depth) {
  const JsonValue* properties = schema.Find("properties");
  const JsonValue* required = schema.Find("required");
  const JsonValue* additional = schema.Find("additionalProperties");
  if (properties != nullptr && !properties->IsObject()) {
    return SchemaError(absl::StrCat(pointer, "/properties"), "expected an object");
  }
  int32_t other_rule = -1;     // of unnamed properties that may be written
  int32_t required_rule = -1;  // of those that are only named in "required"
  if (additional == nullptr) {
    required_rule = text_.Any();
    other_rule = properties == nullptr ? required_rule : -1;
  } else if (additional->kind != JsonValue::Kind::kBool || additional->boolean) {
    ASSIGN_OR_RETURN(other_rule,
                     RuleOf(*additional, absl::StrCat(pointer, "/additionalProperties"), depth + 1));
    required_rule = other_rule;
  }
  std::vector<JsonText::Property> list;
  if (properties != nullptr) {
    for (const auto& [name, value] : properties->members) {
      ASSIGN_OR_RETURN(const int32_t rule,
                       RuleOf(value, absl::StrCat(pointer, "/properties/", name), depth + 1));
      list.push_back({name, rule, false});
    }
  }
  if (required != nullptr && required->kind != JsonValue::Kind::kArray) {
    return SchemaError(absl::StrCat(pointer, "/required"), "expected a list of names");
  }
  for (size_t i = 0; required != nullptr && i < required->elements.size(); ++i) {
    const JsonValue& name = required->elements[i];
    if (name.kind != JsonValue::Kind::kString) {
      return SchemaError(absl::StrCat(pointer, "/required/", i), "expected a name");
    }
    const auto known = std::find_if(list.begin(), list.end(),
                                    [&](const auto& property) { return property.name == name.text; });
    if (known != list.end()) {
      known->required = true;
    } else if (required_rule >= 0) {
      list.push_back({name.text, required_rule, true});
    } else {
      return SchemaError(absl::StrCat(pointer, "/required/", i),
                         "names no property, and no others are allowed");
    }
  }
  return text_.Object(list, other_rule);
}

absl::StatusOr<Part> Compiler::Array(const JsonValue& schema, const std::string& pointer, int depth) {
  ASSIGN_OR_RETURN(const int least, SchemaCount(schema, "minItems", pointer, 0));
  ASSIGN_OR_RETURN(const int most, SchemaCount(schema, "maxItems", pointer, JsonText::kUnbounded));
  std::vector<int32_t> first;
  if (const JsonValue* prefix = schema.Find("prefixItems"); prefix != nullptr) {
    if (prefix->kind != JsonValue::Kind::kArray) {
      return SchemaError(absl::StrCat(pointer, "/prefixItems"), "expected a list of schemas");
    }
    for (size_t i = 0; i < prefix->elements.size(); ++i) {
      ASSIGN_OR_RETURN(const int32_t rule,
                       RuleOf(prefix->elements[i], absl::StrCat(pointer, "/prefixItems/", i), depth + 1));
      first.push_back(rule);
    }
  }
  const JsonValue* items = schema.Find("items");
  int32_t rest = -1;
  if (items == nullptr) {
    rest = text_.Any();
  } else if (items->kind != JsonValue::Kind::kBool || items->boolean) {
    ASSIGN_OR_RETURN(rest, RuleOf(*items, absl::StrCat(pointer, "/items"), depth + 1));
  }
  return text_.Array(first, rest, least, most);
}

}  // namespace

absl::Status AddJsonSchema(ByteGrammar& grammar, std::string_view schema) {
  if (schema.size() > kMaxJsonSchemaBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("json_schema: ", schema.size(), " bytes, expected at most ", kMaxJsonSchemaBytes));
  }
  const auto root = ParseJsonValue(schema, kMaxDepth);
  if (!root.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("json_schema: is no JSON: ", std::string(root.status().message())));
  }
  return Compiler(grammar, *root).Run();
}

}  // namespace arborist
