#include "common/grammar/excerpt.h"

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace arborist {

std::string Excerpt(std::string_view text, size_t at) {
  constexpr size_t kBytes = 12;
  if (at >= text.size()) {
    return "the end";
  }
  const std::string_view few = text.substr(at, kBytes);
  return absl::StrCat("\"", std::string(few.substr(0, ValidUtf8Prefix(few))), "\"");
}

}  // namespace arborist
