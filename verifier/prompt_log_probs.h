#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace arborist::verifier {

// The log-probabilities of a sequence's prompt, as far as they are known: its second token has the first one,
// which comes with row 0 of the prefill. The rows whose values are not known yet are scored, in order; until
// then no K/V for them is taken from elsewhere. The default is of a sequence whose owner does not ask.
class PromptLogProbs {
 public:
  PromptLogProbs() = default;
  explicit PromptLogProbs(int32_t prompt_tokens);

  // How many there are in all, and how many are known.
  int32_t wanted() const { return wanted_; }
  int32_t known() const { return static_cast<int32_t>(values_.size()); }
  // Rows to score, from row known() on.
  int32_t owed() const { return wanted_ - known(); }

  // The most first rows whose K/V may come from a sequence that has `known` values and so many tokens in
  // common with this one: those whose values are known here or there.
  int32_t RowsToTake(int32_t known, int32_t common_tokens) const;
  // Takes over the values of common tokens.
  void Take(const PromptLogProbs& from, int32_t common_tokens);
  // The prefill begins at this row: values that are still owed are those of the rows from here on.
  void BeginAt(int32_t row);
  // Of the next rows that are owed. Allocates nothing.
  void Add(std::span<const float> log_probs);

  // Values that nobody was told yet, at most so many; the first is of prompt token `told` + 1.
  struct News {
    int32_t first_position = 0;
    std::vector<float> log_probs;
  };
  bool HasNews() const { return told_ < known(); }
  News TakeNews(int32_t most);

 private:
  int32_t wanted_ = 0;
  int32_t told_ = 0;
  std::vector<float> values_;  // of prompt token i + 1
};

}  // namespace arborist::verifier
