#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/tokenizer_json.h"

namespace arborist {

// Cuts text into the pieces that byte-pair encoding works on. Immutable, shared by threads.
class PreTokenizer {
 public:
  static absl::StatusOr<PreTokenizer> Create(const TokenizerSpec& spec);

  using Sink = std::function<void(std::string_view piece)>;  // the view is valid during the call

  // Pieces of `text` (valid UTF-8, no added tokens in it) from left to right, none empty.
  class Run;

 private:
  struct Step {
    Pattern pattern;
    SplitStep::Behavior behavior;
    bool invert;
  };
  std::vector<Step> steps_;
  size_t prefix_before_ = 0;  // the space is added before this step
  bool add_prefix_space_ = false;
};

// The working memory of one Encode call.
class PreTokenizer::Run {
 public:
  explicit Run(const PreTokenizer& pre_tokenizer);  // which outlives the run
  absl::Status Split(std::string_view text, const Sink& sink) { return From(0, text, sink); }

 private:
  absl::Status From(size_t step, std::string_view piece, const Sink& sink);
  absl::Status AfterPrefix(size_t step, std::string_view piece, const Sink& sink);
  absl::Status Cut(size_t step, std::string_view piece);

  struct Segment {
    ByteRange range;
    bool is_delimiter;
  };
  struct Scratch {
    Matcher matcher;
    std::vector<ByteRange> matches;
    std::vector<Segment> segments;
    std::vector<ByteRange> pieces;
  };
  const PreTokenizer* pre_tokenizer_;
  std::vector<Scratch> scratch_;  // one for each step
};

}  // namespace arborist
