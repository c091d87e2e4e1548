#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// The project's two macros: a function cannot return for its caller.
#define ARBORIST_CONCAT_INNER(a, b) a##b
#define ARBORIST_CONCAT(a, b) ARBORIST_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                           \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression)                     \
  auto ARBORIST_CONCAT(status_or_, __LINE__) = (expression);          \
  if (!ARBORIST_CONCAT(status_or_, __LINE__).ok()) {                  \
    return std::move(ARBORIST_CONCAT(status_or_, __LINE__)).status(); \
  }                                                                   \
  declaration = std::move(ARBORIST_CONCAT(status_or_, __LINE__)).value()
