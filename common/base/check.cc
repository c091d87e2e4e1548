#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace arborist {

void Check(bool condition, std::string_view why, const std::source_location& where) {
  if (condition) [[likely]] {
    return;
  }
  std::fprintf(stderr, "%s:%u: check failed in %s: %.*s\n", where.file_name(), where.line(),
               where.function_name(), static_cast<int>(why.size()), why.data());
  std::abort();
}

}  // namespace arborist
