#include "coordinator/run_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace arborist::coordinator {
namespace {

template <typename... Words>
absl::Status Bad(const Words&... words) {
  return absl::InternalError(absl::StrCat(words...));
}

bool IsStopId(const SamplingParameters& sampling, TokenId id) {
  return std::find(sampling.stop_ids.begin(), sampling.stop_ids.end(), id) != sampling.stop_ids.end();
}

absl::Status CheckId(const char* field, size_t index, TokenId id, int32_t vocabulary_size) {
  if (Raw(id) < 0 || Raw(id) >= vocabulary_size) {
    return Bad(field, "[", index, "]=", Raw(id), ", expected an id in [0, ", vocabulary_size, ")");
  }
  return absl::OkStatus();
}

// NaN and infinity; a rounding above 0 is no reason to leave a path.
absl::Status CheckLogProb(const char* field, size_t index, float value) {
  if (!std::isfinite(value)) {
    return Bad(field, "[", index, "]=", value, ", expected a finite number");
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const PathStart& state, int32_t vocabulary_size, const TokenRun& run) {
  const int64_t prompt_size = static_cast<int64_t>(state.prompt.size());
  const int64_t known = prompt_size + static_cast<int64_t>(state.output_so_far.size());
  for (size_t i = 0; i < run.tokens.size(); ++i) {
    const TokenId id = run.tokens[i];
    if (absl::Status status = CheckId("tokens.token_ids", i, id, vocabulary_size); !status.ok()) {
      return status;
    }
    const int64_t position = run.first_position + static_cast<int64_t>(i);
    if (position < known && state.output_so_far[position - prompt_size] != id) {
      return Bad("tokens repeat position ", position, " as ", Raw(id), ", expected ",
                 Raw(state.output_so_far[position - prompt_size]));
    }
    if (!IsStopId(state.sampling, id)) {
      continue;
    }
    if (position - prompt_size < state.sampling.min_tokens) {
      return Bad("tokens.token_ids[", i, "]=", Raw(id), " ends the answer after ", position - prompt_size,
                 " tokens, expected min_tokens ", state.sampling.min_tokens);
    }
    if (i + 1 < run.tokens.size()) {
      return Bad("tokens.token_ids[", i, "]=", Raw(id), " ends the answer, expected it last");
    }
  }
  if (run.finish == FinishReason::kStopId && !run.tokens.empty() &&
      !IsStopId(state.sampling, run.tokens.back())) {
    return Bad("tokens end with ", Raw(run.tokens.back()), " by STOP_ID, expected a stop id");
  }
  return absl::OkStatus();
}

absl::Status CheckLogProbs(const PathStart& state, int32_t vocabulary_size, const TokenRun& run) {
  if (state.sampling.log_probs) {
    if (run.log_probs.size() != run.tokens.size()) {
      return Bad("tokens.log_probs has ", run.log_probs.size(), " values, expected ", run.tokens.size());
    }
    for (size_t i = 0; i < run.log_probs.size(); ++i) {
      if (absl::Status status = CheckLogProb("tokens.log_probs", i, run.log_probs[i]); !status.ok()) {
        return status;
      }
    }
  }
  if (state.sampling.top_log_probs == 0) {
    return absl::OkStatus();
  }
  if (run.top_log_probs.size() != run.tokens.size()) {
    return Bad("tokens.top_log_probs has ", run.top_log_probs.size(), " lists, expected ", run.tokens.size());
  }
  const size_t each = static_cast<size_t>(std::min(state.sampling.top_log_probs, vocabulary_size));
  for (size_t i = 0; i < run.top_log_probs.size(); ++i) {
    const TopLogProbs& list = run.top_log_probs[i];
    if (list.size() != each) {
      return Bad("tokens.top_log_probs[", i, "] has ", list.size(), " tokens, expected ", each);
    }
    for (size_t j = 0; j < list.size(); ++j) {
      absl::Status status = CheckId("tokens.top_log_probs", i, list[j].token, vocabulary_size);
      status.Update(CheckLogProb("tokens.top_log_probs", i, list[j].log_prob));
      if (!status.ok()) {
        return status;
      }
    }
  }
  return absl::OkStatus();
}

// The reasons that the request itself bears out or not; a stop id is checked with the tokens.
absl::Status CheckFinish(const PathStart& state, int64_t known, int64_t end, FinishReason finish) {
  const SamplingParameters& sampling = state.sampling;
  if (finish != FinishReason::kNone && end < known) {
    return Bad("tokens end the answer at position ", end, ", expected ", known, " at least");
  }
  const int64_t most = static_cast<int64_t>(state.prompt.size()) + sampling.max_tokens;
  if (finish == FinishReason::kMaxTokens && end != most) {
    return Bad("tokens end the answer by MAX_TOKENS at position ", end, ", expected ", most);
  }
  if (finish == FinishReason::kConstraint && sampling.constraint_kind == ConstraintKind::kNone &&
      sampling.bad_words.empty()) {
    return Bad("tokens end the answer by CONSTRAINT, expected a request with one");
  }
  return absl::OkStatus();
}

template <typename T>
void DropFirst(std::vector<T>& values, int64_t count) {
  values.erase(values.begin(), values.begin() + std::min<int64_t>(count, values.size()));
}

}  // namespace

FinishReason CompleteReason(const PathStart& state) {
  const std::vector<TokenId>& output = state.output_so_far;
  if (!output.empty() && IsStopId(state.sampling, output.back())) {
    return FinishReason::kStopId;
  }
  const bool full = static_cast<int64_t>(output.size()) >= state.sampling.max_tokens;
  return full ? FinishReason::kMaxTokens : FinishReason::kNone;
}

absl::Status TakeNew(const PathStart& state, int32_t vocabulary_size, TokenRun& run) {
  if (run.epoch != state.epoch) {
    return Bad("tokens.epoch=", run.epoch, ", expected ", state.epoch);
  }
  const int64_t prompt_size = static_cast<int64_t>(state.prompt.size());
  const int64_t known = prompt_size + static_cast<int64_t>(state.output_so_far.size());
  const bool may_be_empty = run.finish == FinishReason::kConstraint;
  if ((run.tokens.empty() && !may_be_empty) || run.first_position < prompt_size ||
      run.first_position > known) {
    return Bad("tokens.first_position=", run.first_position, " with ", run.tokens.size(),
               " tokens, expected ", known, " and at least one token");
  }
  const int64_t end = run.first_position + static_cast<int64_t>(run.tokens.size());
  if (end > prompt_size + state.sampling.max_tokens) {
    return Bad("tokens reach position ", end, ", expected at most ", prompt_size + state.sampling.max_tokens);
  }
  if (end > known && CompleteReason(state) != FinishReason::kNone) {
    return Bad("tokens reach position ", end, ", expected none after the answer's end at ", known);
  }
  absl::Status status = CheckTokens(state, vocabulary_size, run);
  status.Update(CheckFinish(state, known, end, run.finish));
  status.Update(CheckLogProbs(state, vocabulary_size, run));
  if (!status.ok()) {
    return status;
  }
  const int64_t repeated =
      std::min<int64_t>(known - run.first_position, static_cast<int64_t>(run.tokens.size()));
  DropFirst(run.tokens, repeated);
  DropFirst(run.log_probs, repeated);
  DropFirst(run.top_log_probs, repeated);
  if (!state.sampling.log_probs) {
    run.log_probs.clear();
  }
  if (state.sampling.top_log_probs == 0) {
    run.top_log_probs.clear();
  }
  return absl::OkStatus();
}

int64_t OwedPromptScores(const PathStart& state) {
  return state.sampling.prompt_log_probs ? static_cast<int64_t>(state.prompt.size()) - 1 : 0;
}

absl::Status TakeNew(const PathStart& state, int64_t known, PromptScores& scores) {
  const int64_t owed = OwedPromptScores(state);
  const int64_t end = scores.first_position + static_cast<int64_t>(scores.log_probs.size());
  if (scores.log_probs.empty() || scores.first_position < 1 || scores.first_position > known + 1 ||
      end > owed + 1) {
    return Bad("prompt_log_probs.first_position=", scores.first_position, " with ", scores.log_probs.size(),
               " values, expected ", known + 1, " and at most ", owed - known, " values");
  }
  for (size_t i = 0; i < scores.log_probs.size(); ++i) {
    if (absl::Status status = CheckLogProb("prompt_log_probs", i, scores.log_probs[i]); !status.ok()) {
      return status;
    }
  }
  const int64_t repeated =
      std::min<int64_t>(known + 1 - scores.first_position, static_cast<int64_t>(scores.log_probs.size()));
  DropFirst(scores.log_probs, repeated);
  scores.first_position += repeated;
  return absl::OkStatus();
}

}  // namespace arborist::coordinator
