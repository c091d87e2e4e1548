#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// Keeps what a sequence's owner is told, in order, and lets a test wait for it. A wait that lasts longer than
// half a minute ends the process: nothing here is slow.
class RecordingSink final : public SequenceSink {
 public:
  struct FeatureRows {
    int32_t first_position = 0;
    int32_t rows = 0;
    std::vector<uint16_t> features;
  };

  void OnProgress(ProgressState state, int prompt_tokens_done) override;
  void OnPromptLogProbs(int32_t first_position, std::vector<float> log_probs) override;
  void OnReady(int) override;
  void OnFeatures(int32_t first_position, int32_t rows, std::vector<uint16_t> features) override;
  void OnCommitted(Committed committed) override;
  void OnClosed(absl::Status status) override;

  void WaitReady();
  int first_budget();  // after WaitReady
  // The next one not yet taken; nullopt when the sequence closed instead.
  std::optional<Committed> TakeCommitted();
  absl::Status WaitClosed();
  std::vector<FeatureRows> WaitFeatures(int32_t rows);
  void WaitProgress(ProgressState state);

  std::vector<std::pair<ProgressState, int>> progress();
  // Of the prompt's tokens from the second on, so far.
  std::vector<float> prompt_log_probs();
  bool closed();

 private:
  void Wait(const std::function<bool()>& done);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<ProgressState, int>> progress_;
  std::vector<float> prompt_log_probs_;
  std::vector<FeatureRows> features_;
  std::vector<Committed> committed_;
  size_t taken_ = 0;
  bool ready_ = false;
  int first_budget_ = 0;
  std::optional<absl::Status> closed_;
};

}  // namespace arborist::verifier
