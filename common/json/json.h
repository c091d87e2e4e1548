#pragma once

#include <google/protobuf/struct.pb.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace arborist {

// A JSON object and where it stands ("dir/config.json: text_config"), so that every error can name the place,
// the key, the value and what was expected. Numbers are doubles: integers are exact up to 2^53 and anything
// else is refused by Int.
class JsonObject {
 public:
  JsonObject(google::protobuf::Struct fields, std::string place)
      : fields_(std::move(fields)), place_(std::move(place)) {}

  const google::protobuf::Struct& fields() const { return fields_; }
  const std::string& place() const { return place_; }

  bool Contains(const std::string& key) const;  // present, even if null
  bool Has(const std::string& key) const;       // present and not null

  // Errors on a missing key, null or another type.
  absl::StatusOr<int64_t> Int(const std::string& key) const;
  absl::StatusOr<double> Number(const std::string& key) const;  // finite
  absl::StatusOr<bool> Bool(const std::string& key) const;
  absl::StatusOr<std::string> String(const std::string& key) const;
  absl::StatusOr<JsonObject> Object(const std::string& key) const;
  absl::StatusOr<std::vector<int64_t>> IntList(const std::string& key) const;
  absl::StatusOr<std::vector<std::string>> StringList(const std::string& key) const;

  // The fallback stands for a missing key or null; another type is still an error.
  absl::StatusOr<int64_t> IntOr(const std::string& key, int64_t fallback) const;
  absl::StatusOr<double> NumberOr(const std::string& key, double fallback) const;
  absl::StatusOr<bool> BoolOr(const std::string& key, bool fallback) const;
  absl::StatusOr<std::string> StringOr(const std::string& key, const std::string& fallback) const;

  // "place: key=value, expected <expectation>", for the caller's own checks.
  absl::Status Unexpected(const std::string& key, const std::string& expectation) const;

 private:
  const google::protobuf::Value* Find(const std::string& key) const;

  google::protobuf::Struct fields_;
  std::string place_;
};

// The top level must be an object. `place` names the text in errors.
absl::StatusOr<JsonObject> ParseJson(const std::string& text, const std::string& place);
// Of a model's directory: what model_file.h refuses is refused.
absl::StatusOr<JsonObject> ReadJson(const std::string& path);

}  // namespace arborist
