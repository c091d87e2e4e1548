#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/code_points.h"

namespace arborist {

struct RegexNode {
  enum class Kind : uint8_t { kEmpty, kClass, kSequence, kEither, kRepeat };
  static constexpr int kUnbounded = -1;

  Kind kind = Kind::kEmpty;
  CodePoints characters;                             // kClass; empty: matches nothing
  std::vector<std::unique_ptr<RegexNode>> children;  // kRepeat has one
  int least = 0;                                     // kRepeat
  int most = 0;                                      // kRepeat; or kUnbounded
};

// One alternative of the top level.
struct RegexAlternative {
  std::unique_ptr<RegexNode> body;
  bool at_start = false;  // it began with ^
  bool at_end = false;    // it ended with $
};

// The dialect is that of AddRegex. Depth of groups and repetition counts are bounded.
absl::StatusOr<std::vector<RegexAlternative>> ParseRegex(std::string_view pattern);

}  // namespace arborist
