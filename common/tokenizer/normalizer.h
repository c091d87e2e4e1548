#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/tokenizer_json.h"

namespace arborist {

// Whether every character of `text` (valid UTF-8) is of a kind that composition leaves alone whatever stands
// around it: Latin-1 and its neighbours, plain Greek and Cyrillic letters, Han, kana, whole Hangul syllables.
// Most text is, and needs no table; false says nothing.
bool IsSurelyComposed(std::string_view text);

// Rewrites text before it is split, by the steps of tokenizer.json. Immutable, shared by threads.
class Normalizer {
 public:
  static absl::StatusOr<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }  // text stays as it is

  // The working memory of one Encode call.
  class Run;

 private:
  struct Step {
    NormalizerStep what;
    std::optional<Pattern> pattern;  // of kReplace
  };
  std::vector<Step> steps_;
};

class Normalizer::Run {
 public:
  explicit Run(const Normalizer& normalizer);  // which outlives the run

  // `text` (valid UTF-8) after all steps: `text` itself where nothing changes, else a view of memory that the
  // next call reuses.
  absl::StatusOr<std::string_view> Apply(std::string_view text);

 private:
  absl::Status Replace(size_t step, std::string_view text, std::string& out);

  const Normalizer* normalizer_;
  std::vector<std::optional<Matcher>> matchers_;  // one for each step
  std::vector<ByteRange> matches_;
  std::string current_;
  std::string next_;
};

}  // namespace arborist
