#include "common/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist {

absl::StatusOr<PreTokenizer> PreTokenizer::Create(const TokenizerSpec& spec) {
  PreTokenizer out;
  for (const auto* steps : {&spec.before_prefix, &spec.after_prefix}) {
    for (const SplitStep& step : *steps) {
      absl::StatusOr<Pattern> pattern = Pattern::Compile(step.pattern, step.literal);
      if (!pattern.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("pre_tokenizer: ", pattern.status().message()));
      }
      out.steps_.push_back({std::move(*pattern), step.behavior, step.invert});
    }
  }
  out.prefix_before_ = spec.before_prefix.size();
  out.add_prefix_space_ = spec.add_prefix_space;
  return out;
}

PreTokenizer::Run::Run(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(&pre_tokenizer) {
  scratch_.reserve(pre_tokenizer.steps_.size());
  for (const Step& step : pre_tokenizer.steps_) {
    scratch_.push_back({Matcher(step.pattern), {}, {}, {}});
  }
}

absl::Status PreTokenizer::Run::From(size_t step, std::string_view piece, const Sink& sink) {
  if (piece.empty()) {
    return absl::OkStatus();
  }
  if (step == pre_tokenizer_->prefix_before_ && pre_tokenizer_->add_prefix_space_ && piece[0] != ' ') {
    const std::string prefixed = absl::StrCat(" ", std::string(piece));
    return AfterPrefix(step, prefixed, sink);
  }
  return AfterPrefix(step, piece, sink);
}

absl::Status PreTokenizer::Run::AfterPrefix(size_t step, std::string_view piece, const Sink& sink) {
  if (step == pre_tokenizer_->steps_.size()) {
    sink(piece);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Cut(step, piece));
  for (const ByteRange& range : scratch_[step].pieces) {  // deeper steps have scratch of their own
    RETURN_IF_ERROR(From(step + 1, piece.substr(range.begin, range.end - range.begin), sink));
  }
  return absl::OkStatus();
}

// Leaves the pieces in scratch_[step].pieces.
absl::Status PreTokenizer::Run::Cut(size_t step, std::string_view piece) {
  const Step& how = pre_tokenizer_->steps_[step];
  auto& [matcher, matches, segments, pieces] = scratch_[step];
  RETURN_IF_ERROR(matcher.FindAll(piece, matches));
  segments.clear();
  pieces.clear();
  size_t at = 0;
  for (const ByteRange& match : matches) {
    if (at != match.begin) {
      segments.push_back({{at, match.begin}, how.invert});
    }
    segments.push_back({match, !how.invert});
    at = match.end;
  }
  if (at != piece.size()) {
    segments.push_back({{at, piece.size()}, how.invert});
  }
  using Behavior = SplitStep::Behavior;
  const bool backwards = how.behavior == Behavior::kMergedWithNext;
  if (backwards) {
    std::reverse(segments.begin(), segments.end());
  }
  bool previous = false;
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto& [range, is_delimiter] = segments[i];
    const bool merges =
        (how.behavior == Behavior::kContiguous && i > 0 && is_delimiter == previous) ||
        ((how.behavior == Behavior::kMergedWithPrevious || backwards) && is_delimiter && !previous);
    if (merges && !pieces.empty()) {
      pieces.back() = {std::min(pieces.back().begin, range.begin), std::max(pieces.back().end, range.end)};
    } else if (how.behavior != Behavior::kRemoved || !is_delimiter) {
      pieces.push_back(range);
    }
    previous = is_delimiter;
  }
  if (backwards) {
    std::reverse(pieces.begin(), pieces.end());
  }
  return absl::OkStatus();
}

}  // namespace arborist
