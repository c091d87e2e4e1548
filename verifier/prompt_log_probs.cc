#include "verifier/prompt_log_probs.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace arborist::verifier {

PromptLogProbs::PromptLogProbs(int32_t prompt_tokens) : wanted_(prompt_tokens - 1) {
  values_.reserve(static_cast<size_t>(wanted_));
}

int32_t PromptLogProbs::RowsToTake(int32_t known, int32_t common_tokens) const {
  // Row r has the value of token r + 1, which must be the same one.
  const int32_t rows = std::max(this->known(), std::min(known, common_tokens - 1));
  return rows >= wanted_ ? std::numeric_limits<int32_t>::max() : std::max(rows, 0);
}

void PromptLogProbs::Take(const PromptLogProbs& from, int32_t common_tokens) {
  const int32_t common = std::min({from.known(), common_tokens - 1, wanted_});
  if (common > known()) {
    values_.assign(from.values_.begin(), from.values_.begin() + common);
  }
}

void PromptLogProbs::BeginAt(int32_t row) {
  if (owed() > 0) {
    Check(row <= known(), "no row is skipped whose log-probability is owed");
    values_.resize(static_cast<size_t>(row));
  }
}

void PromptLogProbs::Add(std::span<const float> log_probs) {
  Check(static_cast<int64_t>(log_probs.size()) <= owed(), "no more is scored than is owed");
  values_.insert(values_.end(), log_probs.begin(), log_probs.end());
}

PromptLogProbs::News PromptLogProbs::TakeNews(int32_t most) {
  Check(HasNews(), "there are values that nobody was told");
  const auto begin = values_.begin() + told_;
  News news{.first_position = told_ + 1, .log_probs = {begin, begin + std::min(most, known() - told_)}};
  told_ += static_cast<int32_t>(news.log_probs.size());
  return news;
}

}  // namespace arborist::verifier
