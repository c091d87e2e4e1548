#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "verifier/verifier.h"

namespace arborist::verifier::testing {

// A Verifier without a model: the token after t is t + 1. It calls sinks from a thread of its own, as the
// real one does, and its steps can be held back.
class FakeVerifier final : public Verifier {
 public:
  static constexpr int32_t kVocabulary = 1000;
  static constexpr int kHidden = 4;

  FakeVerifier();
  ~FakeVerifier() override;

  // While held, what is submitted waits; opens, finishes and cancels of idle sequences go on.
  void HoldSteps(bool hold);
  void set_ready_on_open(bool ready) { ready_on_open_ = ready; }
  void set_stalled_seconds(double seconds) { stalled_seconds_ = seconds; }
  void FailDevice() { device_failed_ = true; }
  // Features of each committed result are this many bytes (a multiple of 2 * kHidden).
  void set_feature_bytes(size_t bytes) { feature_bytes_ = bytes; }
  // Runs on the step thread.
  void Post(std::function<void()> task);
  SequenceSink* last_sink();

  int open_sequences() const;
  // Sequences that only sequences() knows; to be said before it is asked.
  void PretendOthers(SequenceCounts others) { others_ = others; }
  std::vector<std::string> calls();  // "open", "tree", "decode", "finish", "cancel"
  OpenArgs last_open();
  bool WaitForCall(const std::string& call);

  absl::StatusOr<SequenceHandle> Open(OpenArgs args, SequenceSink* sink) override;
  absl::Status SubmitTree(SequenceHandle sequence, int64_t round, TokenTree tree) override;
  absl::Status SubmitDecode(SequenceHandle sequence, int64_t round, int max_tokens) override;
  absl::Status SubmitDecodeUntilDraftingPays(SequenceHandle sequence, int64_t round,
                                             int max_tokens) override {
    return SubmitDecode(sequence, round, max_tokens);
  }
  void Finish(SequenceHandle sequence) override;
  void Cancel(SequenceHandle sequence) override;
  bool IsOpen(const SequenceKey& key) const override;
  int64_t free_pages() const override { return 7; }
  int64_t total_pages() const override { return 9; }
  SequenceCounts sequences() const override {
    return {.queued = others_.queued, .running = others_.running + open_sequences()};
  }
  double stalled_seconds() const override { return stalled_seconds_; }
  absl::Status device_status() const override {
    return device_failed_ ? absl::UnavailableError("the device failed: injected") : absl::OkStatus();
  }

 private:
  struct Sequence {
    OpenArgs args;
    SequenceSink* sink = nullptr;
    std::vector<TokenId> tokens;
    bool in_flight = false;
    bool ending = false;
  };
  void Run();
  void Record(const std::string& call);
  absl::Status Submit(SequenceHandle handle, int64_t round, int tokens, int nodes, const TokenTree* tree);
  // On the step thread.
  void Step(SequenceHandle handle, int64_t round, int tokens, int nodes);
  void Close(SequenceHandle handle, const absl::Status& status);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::deque<std::function<void()>> held_;
  std::map<SequenceHandle, Sequence> sequences_;
  std::map<std::string, int64_t> epochs_;
  std::vector<std::string> calls_;
  SequenceHandle next_ = 1;
  OpenArgs last_open_;
  SequenceSink* last_sink_ = nullptr;
  SequenceCounts others_;
  bool hold_ = false;
  bool stopping_ = false;
  std::atomic<bool> ready_on_open_{true};
  std::atomic<double> stalled_seconds_{0};
  std::atomic<bool> device_failed_{false};
  std::atomic<size_t> feature_bytes_{0};
  std::thread thread_;
};

}  // namespace arborist::verifier::testing
