#include "verifier/testing/recording_sink.h"

#include <algorithm>
#include <chrono>

#include "common/base/check.h"

namespace arborist::verifier {

void RecordingSink::OnProgress(ProgressState state, int prompt_tokens_done) {
  const std::lock_guard lock(mutex_);
  Check(!closed_.has_value(), "nothing is called after OnClosed");
  progress_.emplace_back(state, prompt_tokens_done);
  changed_.notify_all();
}

void RecordingSink::OnPromptLogProbs(int32_t first_position, std::vector<float> log_probs) {
  const std::lock_guard lock(mutex_);
  Check(!closed_.has_value() && !ready_, "log-probabilities of the prompt come before OnReady");
  Check(first_position == static_cast<int32_t>(prompt_log_probs_.size()) + 1 && !log_probs.empty() &&
            log_probs.size() <= kMaxPromptLogProbs,
        "log-probabilities of the prompt continue one another");
  prompt_log_probs_.insert(prompt_log_probs_.end(), log_probs.begin(), log_probs.end());
}

std::vector<float> RecordingSink::prompt_log_probs() {
  const std::lock_guard lock(mutex_);
  return prompt_log_probs_;
}

void RecordingSink::OnReady(int next_budget) {
  const std::lock_guard lock(mutex_);
  Check(!closed_.has_value() && !ready_, "OnReady comes once, before OnClosed");
  ready_ = true;
  first_budget_ = next_budget;
  changed_.notify_all();
}

int RecordingSink::first_budget() {
  const std::lock_guard lock(mutex_);
  return first_budget_;
}

void RecordingSink::OnFeatures(int32_t first_position, int32_t rows, std::vector<uint16_t> features) {
  const std::lock_guard lock(mutex_);
  Check(!closed_.has_value() && ready_, "features follow OnReady");
  features_.push_back({first_position, rows, std::move(features)});
  changed_.notify_all();
}

void RecordingSink::OnCommitted(Committed committed) {
  const std::lock_guard lock(mutex_);
  Check(!closed_.has_value() && ready_, "nothing is called after OnClosed");
  committed_.push_back(std::move(committed));
  changed_.notify_all();
}

void RecordingSink::OnClosed(absl::Status status) {
  const std::lock_guard lock(mutex_);
  Check(!closed_.has_value(), "OnClosed comes once");
  // Not shared with the step thread: the distribution's abseil is not instrumented, so the counter inside a
  // shared status looks like a race to the thread sanitizer.
  closed_.emplace(status.code(), status.message());
  changed_.notify_all();
}

void RecordingSink::Wait(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  Check(changed_.wait_for(lock, std::chrono::seconds(30), done), "the verifier answers within 30 seconds");
}

void RecordingSink::WaitReady() {
  Wait([this] { return ready_ || closed_.has_value(); });
}

std::optional<Committed> RecordingSink::TakeCommitted() {
  Wait([this] { return taken_ < committed_.size() || closed_.has_value(); });
  const std::lock_guard lock(mutex_);
  if (taken_ == committed_.size()) {
    return std::nullopt;
  }
  return std::move(committed_[taken_++]);
}

absl::Status RecordingSink::WaitClosed() {
  Wait([this] { return closed_.has_value(); });
  const std::lock_guard lock(mutex_);
  return *closed_;
}

std::vector<RecordingSink::FeatureRows> RecordingSink::WaitFeatures(int32_t rows) {
  Wait([this, rows] {
    int32_t total = 0;
    for (const FeatureRows& chunk : features_) {
      total += chunk.rows;
    }
    return total >= rows;
  });
  const std::lock_guard lock(mutex_);
  return features_;
}

void RecordingSink::WaitProgress(ProgressState state) {
  Wait([this, state] {
    return std::any_of(progress_.begin(), progress_.end(),
                       [state](const auto& entry) { return entry.first == state; });
  });
}

std::vector<std::pair<ProgressState, int>> RecordingSink::progress() {
  const std::lock_guard lock(mutex_);
  return progress_;
}

bool RecordingSink::closed() {
  const std::lock_guard lock(mutex_);
  return closed_.has_value();
}

}  // namespace arborist::verifier
