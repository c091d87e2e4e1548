#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace arborist::kernels {

// One element for each row or tree: what the kernels over many trees ask of their arrays.
inline absl::Status CheckSize(absl::string_view field, int64_t size, absl::string_view of, int64_t expected) {
  if (size != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".size=", size, ", expected ", expected, ", one for each ", of));
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels
