#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/json/json.h"
#include "common/tokenizer/added_tokens.h"

namespace arborist {

// One step of the pre-tokenizer: cuts every piece of the step before.
struct SplitStep {
  enum class Behavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  std::string pattern;
  bool literal = false;  // the pattern is plain text
  bool invert = false;   // what does not match is the delimiter
  Behavior behavior = Behavior::kIsolated;
};

// One step of the normalizer: rewrites the text that the step before left.
struct NormalizerStep {
  enum class Kind : uint8_t { kNfc, kNfd, kNfkc, kNfkd, kLowercase, kReplace, kPrepend, kStrip };
  Kind kind = Kind::kNfc;
  std::string pattern;   // kReplace: what is replaced, wherever it matches
  bool literal = false;  // the pattern is plain text
  std::string content;   // kReplace: by this text; kPrepend: this text goes before a text that is not empty
  bool left = false;     // kStrip: white space at the start goes
  bool right = false;    // and at the end
};

// tokenizer.json as we understand it: byte-level BPE.
struct TokenizerSpec {
  std::vector<NormalizerStep> normalizer;
  std::vector<SplitStep> before_prefix;  // in order
  bool add_prefix_space = false;         // then: a piece that does not begin with a space gets one
  std::vector<SplitStep> after_prefix;
  std::vector<std::pair<std::string, int32_t>> vocab;       // as written, in the byte-level alphabet
  std::vector<std::pair<std::string, std::string>> merges;  // by rank, as written
  bool ignore_merges = false;
  std::vector<AddedToken> added_tokens;
  std::string first_special;  // the token that the post-processor puts before every text; "" if none
};

// InvalidArgument names the key, its value and what is supported.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const JsonObject& json);

}  // namespace arborist
