#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/threads/spin_wait.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "verifier/create_verifier.h"
#include "verifier/feature_projection.h"
#include "verifier/finish_rule.h"
#include "verifier/kv_cache.h"
#include "verifier/mask_maker.h"
#include "verifier/model/model.h"
#include "verifier/scheduler.h"
#include "verifier/sequence_budgets.h"
#include "verifier/sequence_table.h"
#include "verifier/shadow_verifier.h"
#include "verifier/step_runner.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// The verifier's two halves: calls from any thread, which only check and note what is wanted (under the
// mutex, verifier_impl.cc), and the step thread, which alone runs the model, owns pages and calls sinks,
// never under the mutex (step_thread.cc; what it tells the owners is in delivery.cc).
class VerifierImpl final : public Verifier {
 public:
  static absl::StatusOr<std::unique_ptr<VerifierImpl>> Create(const VerifierOptions& options,
                                                              std::unique_ptr<Model> model,
                                                              std::optional<Projection> projection,
                                                              const kernels::KernelSet& kernels,
                                                              Device& device);
  ~VerifierImpl() override;

  // On the caller's thread, before Start.
  absl::Status SelfTest();
  absl::Status MeasureCosts();
  void StartShadow();
  void Start();

  absl::StatusOr<SequenceHandle> Open(OpenArgs args, SequenceSink* sink) override;
  absl::Status SubmitTree(SequenceHandle sequence, int64_t round, TokenTree tree) override;
  absl::Status SubmitDecode(SequenceHandle sequence, int64_t round, int max_tokens) override;
  absl::Status SubmitDecodeUntilDraftingPays(SequenceHandle sequence, int64_t round, int max_tokens) override;
  void Finish(SequenceHandle sequence) override;
  void Cancel(SequenceHandle sequence) override;

  int64_t free_pages() const override { return cache_.pool().free_pages(); }
  int64_t total_pages() const override { return cache_.pool().total_pages(); }
  SequenceCounts sequences() const override {
    return {.queued = queued_.load(std::memory_order_relaxed),
            .running = running_.load(std::memory_order_relaxed)};
  }
  bool IsOpen(const SequenceKey& key) const override;
  double stalled_seconds() const override;
  absl::Status device_status() const override;

 private:
  using Clock = std::chrono::steady_clock;

  VerifierImpl(const VerifierOptions& options, std::unique_ptr<Model> model,
               std::optional<FeatureProjection> projection, KvPlanes planes, Device& device);

  // One tree's or chunk's part in the step under way.
  struct TreeInStep {
    Sequence* sequence;
    Committed committed;
    bool deliver = false;  // it had not ended when the step did
    bool waits = false;    // for its owner's next Tree or Decode
  };
  struct ChunkInStep {
    Sequence* sequence;
    int rows;
    bool scored;
    bool deliver = false;
  };

  // Calls from outside take the mutex.
  absl::Status AddControls(const OpenArgs& args, int64_t most_tokens, Sequence& sequence) const;
  absl::Status BeginDecode(SequenceHandle handle, int64_t round, int max_tokens, bool until_drafting_pays);
  // Those that are cached at once, others on the maker's thread. Null: nothing is to do.
  void MakeMasks(SequenceHandle sequence, const std::shared_ptr<TreeMasks>& masks);
  void TakeMasks(SequenceHandle sequence, const std::shared_ptr<TreeMasks>& masks);

  // Under the mutex.
  absl::Status CheckOpen(const OpenArgs& args) const;
  absl::StatusOr<Sequence*> FindForRound(SequenceHandle handle);
  void BeginRound(Sequence& sequence, int64_t round);
  // Of a round that begins under a constraint.
  void BeginMasks(Sequence& sequence);
  void Wake();
  bool HasWork() const;
  void RemoveEnded();
  void AdmitHeirs();
  void AdmitQueue();
  bool AdmitFromQueue(Sequence& sequence, const SharedPrefix& shared);
  bool Admit(Sequence& sequence, int32_t kept);
  void BecomeReadyIfComputed(Sequence& sequence);
  void Plan();
  void ApplyTree(int index);
  void ApplyChunk(int index);
  // Ends and takes out every sequence; DeliverClosed tells the owners.
  void CloseTable(const absl::Status& status);

  // The step thread, outside the mutex.
  void Loop();
  void AwaitWork(std::unique_lock<std::mutex>& lock);
  void MarkProgress();
  void RunStep();
  // After a step or a copy failed on a GPU, which leaves it unusable: ends everything.
  void FailDevice();
  void BuildCommitted(int index, double step_seconds);
  int TreeRows() const;           // of the step
  bool StepShowsItsCost() const;  // the cost of its trees' rows
  void DecideBudgets();
  void NoteStepCost();
  void ReportStep(double seconds) const;
  // What the last step and the boundary after it brought; once.
  void Deliver();
  void DeliverBoundary();
  void DeliverClosed();
  void DeliverPhase(Sequence& sequence);
  static void DeliverPromptLogProbs(Sequence& sequence);
  void DeliverFeatureChunk(Sequence& sequence);
  void DeliverStepBegin();
  void DeliverStep();
  static void DeliverTree(TreeInStep& tree);
  void CloseAll();

  const VerifierOptions options_;
  std::unique_ptr<Model> model_;
  Device& device_;
  SpinWait spin_;  // of the step thread
  const StepLimits limits_;
  std::optional<FeatureProjection> projection_;
  const int64_t projection_hidden_;         // 0 without
  KvCache cache_;                           // outlives the sequences, whose pages return to it
  std::unique_ptr<ShadowVerifier> shadow_;  // null: no step is shadowed
  std::unique_ptr<StepRunner> runner_;

  SequenceBudgets budgets_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  SequenceTable table_;         // guarded by mutex_
  bool stopping_ = false;       // guarded by mutex_
  absl::Status device_status_;  // guarded by mutex_
  uint64_t next_ticket_ = 1;    // guarded by mutex_
  uint64_t cuts_ = 0;           // guarded by mutex_
  std::thread thread_;
  ThreadPool deliverers_;
  MaskMaker mask_maker_;

  std::atomic<uint64_t> calls_{0};  // that woke, or would have woken, the step thread
  std::atomic<bool> busy_{false};
  std::atomic<int64_t> last_step_ns_{0};
  std::atomic<int> queued_{0};  // and those admitted, at the last boundary
  std::atomic<int> running_{0};

  // The step thread's lists; they keep their memory.
  std::vector<std::unique_ptr<Sequence>> closed_;
  std::vector<Sequence*> announced_;  // newly queued or admitted
  std::vector<Sequence*> queue_;
  std::vector<Sequence*> with_features_;
  std::vector<Sequence*> waiting_trees_;
  std::vector<Sequence*> waiting_prompts_;
  std::vector<WaitingTree> waiting_;  // of waiting_trees_
  std::vector<WaitingPrompt> prompts_;
  StepPlan plan_;
  std::vector<TreeInStep> trees_;
  std::vector<ChunkInStep> chunks_;
  std::vector<TreeInStep> finished_trees_;  // of the last step: their owners do not know yet
  std::vector<ChunkInStep> finished_chunks_;
  std::vector<StepTree> step_trees_;
  std::vector<StepChunk> step_chunks_;
  std::vector<TokenId> run_;
  absl::Status step_status_;
  absl::Status device_fault_;   // of a step or a copy on a GPU
  bool device_failed_ = false;  // that was told
  Clock::time_point step_begin_;
};

// The cache that the options ask for.
KvShape CacheShape(const VerifierOptions& options, const ModelConfig& model, bool features);

}  // namespace arborist::verifier
