#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/status_bridge.h"
#include "google/protobuf/repeated_field.h"

namespace arborist::verifier {

// Checks of single fields of a message: INVALID_ARGUMENT with field, value and what was expected.

inline absl::Status Range(const std::string& field, double value, bool ok, const std::string& expected) {
  return ok ? absl::OkStatus() : FieldError(field, absl::StrCat(value), expected);
}

inline absl::Status CheckIds(const std::string& field, const google::protobuf::RepeatedField<int32_t>& ids,
                             int32_t vocabulary) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      return FieldError(absl::StrCat(field, "[", i, "]"), absl::StrCat(ids[i]),
                        absl::StrCat("an id in [0, ", vocabulary, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::verifier
