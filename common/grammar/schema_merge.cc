#include "common/grammar/schema_merge.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

std::vector<std::string> Strings(const JsonValue& value) {
  std::vector<std::string> strings;
  if (value.kind == JsonValue::Kind::kString) {
    strings.push_back(value.text);
  }
  for (const JsonValue& element : value.elements) {
    strings.push_back(element.text);
  }
  return strings;
}

bool Holds(const std::vector<std::string>& list, const std::string& entry) {
  return std::find(list.begin(), list.end(), entry) != list.end();
}

JsonValue StringArray(const std::vector<std::string>& strings) {
  JsonValue array;
  array.kind = JsonValue::Kind::kArray;
  for (const std::string& text : strings) {
    JsonValue value;
    value.kind = JsonValue::Kind::kString;
    value.text = text;
    array.elements.push_back(std::move(value));
  }
  return array;
}

JsonValue CommonTypes(const JsonValue& a, const JsonValue& b) {
  const std::vector<std::string> left = Strings(a);
  const std::vector<std::string> right = Strings(b);
  std::vector<std::string> both;
  for (const std::string& type : left) {
    if (Holds(right, type) || (type == "integer" && Holds(right, "number"))) {
      both.push_back(type);
    }
  }
  if (Holds(left, "number") && Holds(right, "integer") && !Holds(both, "integer")) {
    both.push_back("integer");
  }
  return StringArray(both);
}

// With "additionalProperties" a schema speaks about the other one's properties too.
bool SpeaksOfUnnamed(const JsonValue& schema) {
  const JsonValue* additional = schema.Find("additionalProperties");
  return additional != nullptr && !(additional->kind == JsonValue::Kind::kBool && additional->boolean);
}

bool NamesOthers(const JsonValue& a, const JsonValue& b) {
  const JsonValue* mine = a.Find("properties");
  const JsonValue* others = b.Find("properties");
  return others != nullptr &&
         std::any_of(others->members.begin(), others->members.end(), [&](const auto& member) {
           return mine == nullptr || mine->Find(member.first) == nullptr;
         });
}

// With "items" a schema speaks about those elements too that only the other one's "prefixItems" name.
bool SpeaksOfRest(const JsonValue& schema) {
  const JsonValue* items = schema.Find("items");
  return items != nullptr && !(items->kind == JsonValue::Kind::kBool && items->boolean);
}

bool NamesMoreElements(const JsonValue& a, const JsonValue& b) {
  const JsonValue* mine = a.Find("prefixItems");
  const JsonValue* others = b.Find("prefixItems");
  return others != nullptr && others->elements.size() > (mine == nullptr ? 0 : mine->elements.size());
}

// The constants a schema allows, if it says so.
std::vector<const JsonValue*> Constants(const JsonValue& schema) {
  std::vector<const JsonValue*> constants;
  if (const JsonValue* value = schema.Find("const"); value != nullptr) {
    constants.push_back(value);
  } else if (const JsonValue* list = schema.Find("enum"); list != nullptr) {
    for (const JsonValue& element : list->elements) {
      constants.push_back(&element);
    }
  }
  return constants;
}

// Only strings are compared: 1 and 1.0 are one value.
bool AreTexts(const std::vector<const JsonValue*>& constants) {
  return !constants.empty() && std::all_of(constants.begin(), constants.end(), [](const JsonValue* value) {
    return value->kind == JsonValue::Kind::kString;
  });
}

std::vector<std::string> Types(const JsonValue& schema) {
  const JsonValue* type = schema.Find("type");
  if (type != nullptr) {
    return Strings(*type);
  }
  std::vector<std::string> types;
  for (const JsonValue* constant : Constants(schema)) {
    constexpr const char* kNames[] = {"null", "boolean", "number", "string", "array", "object"};
    types.emplace_back(kNames[static_cast<int>(constant->kind)]);
  }
  return types;
}

}  // namespace

bool IsAnnotation(std::string_view keyword) {
  constexpr std::string_view kAnnotations[] = {
      "title",       "description",  "default",         "examples",         "$comment",
      "$schema",     "$id",          "deprecated",      "readOnly",         "writeOnly",
      "$defs",       "definitions",  "contentEncoding", "contentMediaType", "$anchor",
      "$vocabulary", "discriminator"};
  return std::find(std::begin(kAnnotations), std::end(kAnnotations), keyword) != std::end(kAnnotations) ||
         keyword.substr(0, 2) == "x-";
}

absl::StatusOr<JsonValue> MergeSchemas(const JsonValue& a, const JsonValue& b, const std::string& pointer) {
  for (const JsonValue* side : {&a, &b}) {
    if (side->kind == JsonValue::Kind::kBool) {
      return side->boolean ? (side == &a ? b : a) : *side;
    }
    if (!side->IsObject()) {
      return absl::InvalidArgumentError(absl::StrCat("json_schema: ", pointer, ": is no schema"));
    }
  }
  if ((SpeaksOfUnnamed(a) && NamesOthers(a, b)) || (SpeaksOfUnnamed(b) && NamesOthers(b, a))) {
    return absl::InvalidArgumentError(
        absl::StrCat("json_schema: ", pointer,
                     ": additionalProperties meets the properties of another part, which is not supported"));
  }
  if ((SpeaksOfRest(a) && NamesMoreElements(a, b)) || (SpeaksOfRest(b) && NamesMoreElements(b, a))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "json_schema: ", pointer, ": items meets the prefixItems of another part, which is not supported"));
  }
  JsonValue merged;
  merged.kind = JsonValue::Kind::kObject;
  for (const auto& member : a.members) {
    if (!IsAnnotation(member.first)) {
      merged.members.push_back(member);
    }
  }
  for (const auto& [key, value] : b.members) {
    if (IsAnnotation(key)) {
      continue;
    }
    const auto mine = std::find_if(merged.members.begin(), merged.members.end(),
                                   [&, &name = key](const auto& member) { return member.first == name; });
    if (mine == merged.members.end()) {
      merged.members.emplace_back(key, value);
    } else if (SameJson(mine->second, value)) {
      continue;
    } else if (key == "type") {
      mine->second = CommonTypes(mine->second, value);
    } else if (key == "required") {
      std::vector<std::string> all = Strings(mine->second);
      for (const std::string& name : Strings(value)) {
        if (!Holds(all, name)) {
          all.push_back(name);
        }
      }
      mine->second = StringArray(all);
    } else if (key == "properties" && mine->second.IsObject() && value.IsObject()) {
      for (const auto& property : value.members) {
        const JsonValue* known = mine->second.Find(property.first);
        if (known == nullptr) {
          mine->second.members.push_back(property);
          continue;
        }
        ASSIGN_OR_RETURN(JsonValue both, MergeSchemas(*known, property.second,
                                                      absl::StrCat(pointer, "/properties/", property.first)));
        *const_cast<JsonValue*>(known) = std::move(both);
      }
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("json_schema: ", pointer, ": two parts both say ", key, ", which is not supported"));
    }
  }
  return merged;
}

JsonValue Without(const JsonValue& schema, std::string_view keyword) {
  JsonValue rest = schema;
  std::erase_if(rest.members, [&](const auto& member) { return member.first == keyword; });
  return rest;
}

bool AreDisjoint(const JsonValue& a, const JsonValue& b) {
  if (!a.IsObject() || !b.IsObject()) {
    return false;
  }
  const std::vector<std::string> left = Types(a);
  const std::vector<std::string> right = Types(b);
  const bool types_meet = std::any_of(left.begin(), left.end(), [&](const std::string& type) {
    return Holds(right, type) || (type == "integer" && Holds(right, "number")) ||
           (type == "number" && Holds(right, "integer"));
  });
  if (!left.empty() && !right.empty() && !types_meet) {
    return true;
  }
  const std::vector<const JsonValue*> mine = Constants(a);
  const std::vector<const JsonValue*> others = Constants(b);
  if (AreTexts(mine) && AreTexts(others)) {
    return std::none_of(mine.begin(), mine.end(), [&](const JsonValue* value) {
      return std::any_of(others.begin(), others.end(),
                         [&](const JsonValue* other) { return SameJson(*value, *other); });
    });
  }
  // Objects that both require a property which cannot be the same.
  const auto only_object = [](const std::vector<std::string>& types) {
    return types.size() == 1 && types[0] == "object";
  };
  const JsonValue* my_properties = a.Find("properties");
  const JsonValue* other_properties = b.Find("properties");
  const JsonValue* my_required = a.Find("required");
  const JsonValue* other_required = b.Find("required");
  if (!only_object(left) || !only_object(right) || my_properties == nullptr || other_properties == nullptr ||
      my_required == nullptr || other_required == nullptr) {
    return false;
  }
  const std::vector<std::string> demanded = Strings(*other_required);
  for (const std::string& name : Strings(*my_required)) {
    const JsonValue* my_value = my_properties->Find(name);
    const JsonValue* other_value = other_properties->Find(name);
    if (Holds(demanded, name) && my_value != nullptr && other_value != nullptr &&
        AreDisjoint(*my_value, *other_value)) {
      return true;
    }
  }
  return false;
}

std::optional<std::pair<size_t, size_t>> FindOverlap(const std::vector<const JsonValue*>& schemas) {
  absl::flat_hash_map<std::string_view, size_t> owners;  // of strings, by those that are nothing but strings
  std::vector<bool> is_texts(schemas.size());
  for (size_t i = 0; i < schemas.size(); ++i) {
    const std::vector<const JsonValue*> constants = Constants(*schemas[i]);
    const std::vector<std::string> types = Types(*schemas[i]);
    is_texts[i] = AreTexts(constants) &&
                  std::all_of(types.begin(), types.end(), [](const auto& type) { return type == "string"; });
    for (size_t j = 0; j < i; ++j) {
      if (!(is_texts[i] && is_texts[j]) && !AreDisjoint(*schemas[i], *schemas[j])) {
        return std::pair(j, i);
      }
    }
    for (size_t c = 0; is_texts[i] && c < constants.size(); ++c) {
      const auto [owner, is_new] = owners.try_emplace(constants[c]->text, i);
      if (owner->second != i) {
        return std::pair(owner->second, i);
      }
    }
  }
  return std::nullopt;
}

}  // namespace arborist
