#include "common/json/json.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

using google::protobuf::Value;

constexpr double kLargestExactInteger = 9007199254740992.0;  // 2^53
constexpr size_t kLongestShownValue = 120;

std::string Show(const Value* value) {
  if (value == nullptr) {
    return "missing";
  }
  std::string text;
  if (!google::protobuf::util::MessageToJsonString(*value, &text).ok()) {
    return "?";
  }
  return text.size() <= kLongestShownValue ? text : text.substr(0, kLongestShownValue) + "...";
}

// The parser adds the place as a line of the text and a line with an arrow under it.
std::string OneLine(const std::string& message) {
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  std::string text(absl::StripAsciiWhitespace(absl::StripPrefix(lines[0], ":")));
  const absl::string_view near =
      absl::StripAsciiWhitespace(lines.size() > 1 ? absl::string_view(lines[1]) : "");
  if (!near.empty()) {
    absl::StrAppend(&text, " Near: ", absl::CHexEscape(near.substr(0, kLongestShownValue)));
  }
  return text.substr(0, 2 * kLongestShownValue);
}

bool IsInteger(const Value& value) {
  return value.kind_case() == Value::kNumberValue && std::abs(value.number_value()) <= kLargestExactInteger &&
         value.number_value() == std::floor(value.number_value());
}

}  // namespace

const Value* JsonObject::Find(const std::string& key) const {
  const auto found = fields_.fields().find(key);
  return found == fields_.fields().end() ? nullptr : &found->second;
}

bool JsonObject::Contains(const std::string& key) const { return Find(key) != nullptr; }

bool JsonObject::Has(const std::string& key) const {
  const Value* value = Find(key);
  return value != nullptr && value->kind_case() != Value::kNullValue;
}

absl::Status JsonObject::Unexpected(const std::string& key, const std::string& expectation) const {
  return absl::InvalidArgumentError(absl::StrCat(place_, ": ", absl::Utf8SafeCHexEscape(key), "=",
                                                 Show(Find(key)), ", expected ", expectation));
}

absl::StatusOr<int64_t> JsonObject::Int(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || !IsInteger(*value)) {
    return Unexpected(key, "an integer");
  }
  return static_cast<int64_t>(value->number_value());
}

absl::StatusOr<double> JsonObject::Number(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || value->kind_case() != Value::kNumberValue ||
      !std::isfinite(value->number_value())) {
    return Unexpected(key, "a finite number");
  }
  return value->number_value();
}

absl::StatusOr<bool> JsonObject::Bool(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || value->kind_case() != Value::kBoolValue) {
    return Unexpected(key, "true or false");
  }
  return value->bool_value();
}

absl::StatusOr<std::string> JsonObject::String(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || value->kind_case() != Value::kStringValue) {
    return Unexpected(key, "a string");
  }
  return value->string_value();
}

absl::StatusOr<JsonObject> JsonObject::Object(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || value->kind_case() != Value::kStructValue) {
    return Unexpected(key, "an object");
  }
  return JsonObject(value->struct_value(), absl::StrCat(place_, ": ", key));
}

absl::StatusOr<std::vector<int64_t>> JsonObject::IntList(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || value->kind_case() != Value::kListValue) {
    return Unexpected(key, "a list of integers");
  }
  std::vector<int64_t> list;
  for (const Value& element : value->list_value().values()) {
    if (!IsInteger(element)) {
      return Unexpected(key, "a list of integers");
    }
    list.push_back(static_cast<int64_t>(element.number_value()));
  }
  return list;
}

absl::StatusOr<std::vector<std::string>> JsonObject::StringList(const std::string& key) const {
  const Value* value = Find(key);
  if (value == nullptr || value->kind_case() != Value::kListValue) {
    return Unexpected(key, "a list of strings");
  }
  std::vector<std::string> list;
  for (const Value& element : value->list_value().values()) {
    if (element.kind_case() != Value::kStringValue) {
      return Unexpected(key, "a list of strings");
    }
    list.push_back(element.string_value());
  }
  return list;
}

absl::StatusOr<int64_t> JsonObject::IntOr(const std::string& key, int64_t fallback) const {
  return Has(key) ? Int(key) : fallback;
}

absl::StatusOr<double> JsonObject::NumberOr(const std::string& key, double fallback) const {
  return Has(key) ? Number(key) : fallback;
}

absl::StatusOr<bool> JsonObject::BoolOr(const std::string& key, bool fallback) const {
  return Has(key) ? Bool(key) : fallback;
}

absl::StatusOr<std::string> JsonObject::StringOr(const std::string& key, const std::string& fallback) const {
  return Has(key) ? String(key) : fallback;
}

absl::StatusOr<JsonObject> ParseJson(const std::string& text, const std::string& place) {
  google::protobuf::Struct fields;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &fields);
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": not a JSON object: ", OneLine(std::string(status.message()))));
  }
  return JsonObject(std::move(fields), place);
}

absl::StatusOr<JsonObject> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadModelFile(path, kMaxModelJsonBytes));
  return ParseJson(text, path);
}

}  // namespace arborist
