// What the step thread tells the owners of sequences. Never under the mutex: a sink may call back.
#include <algorithm>
#include <utility>

#include "verifier/verifier_impl.h"

namespace arborist::verifier {
namespace {

// Most bytes of one OnFeatures on attach.
constexpr int64_t kFeatureChunkBytes = 128 << 10;
// For fewer it does not pay to wake another thread.
constexpr int64_t kTreesOfDeliverer = 3;

}  // namespace

// Turns outcome `index` of the step into the message of its sequence. The tokens of the accepted nodes and
// the bonus, cut after one that finishes the sequence.
void VerifierImpl::BuildCommitted(int index, double step_seconds) {
  TreeInStep& tree = trees_[index];
  Sequence& sequence = *tree.sequence;
  const Round& round = sequence.round;
  const TreeOutcome& outcome = runner_->outcome(index);
  if (!outcome.status.ok()) {
    return;
  }
  run_.clear();
  for (const int32_t node : outcome.path.subspan(1)) {
    run_.push_back(round.tree.token[node]);
  }
  run_.push_back(outcome.bonus);
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  const ConstraintMasks::RunEnd end = sequence.constraint == nullptr
                                          ? ConstraintMasks::RunEnd()
                                          : sequence.constraint->EndOfRun(outcome.path, outcome.bonus);
  const RunCut cut = CutRun(run_, {.stop_ids = sequence.args.stop_ids,
                                   .output_left = sequence.output_limit - length,
                                   .context_left = options_.max_context - length,
                                   .constraint_end = end.over,
                                   .constraint_cut = end.unknown});
  Committed& committed = tree.committed;
  committed.epoch = sequence.args.epoch;
  committed.round = round.number;
  committed.first_position = static_cast<int32_t>(length);
  committed.tokens.assign(run_.begin(), run_.begin() + cut.kept);
  committed.log_probs.assign(outcome.log_probs.begin(), outcome.log_probs.begin() + cut.kept);
  const size_t top = outcome.top_log_probs.size() / outcome.path.size();
  committed.top_log_probs.assign(outcome.top_log_probs.begin(),
                                 outcome.top_log_probs.begin() + static_cast<ptrdiff_t>(top) * cut.kept);
  committed.verified_nodes = round.tree.nodes() - 1;
  committed.cut_nodes = round.cut_nodes;
  committed.compacted = outcome.compacted;
  committed.finish_reason = cut.reason;
  committed.next_budget = budgets_.Next(sequence);
  committed.queue_seconds = std::chrono::duration<double>(step_begin_ - round.submitted).count();
  committed.verify_seconds = step_seconds;
  if (!sequence.args.projection_hash.empty()) {
    committed.feature_position = sequence.root_position();
    // Of a run that goes on, the last token's come with the next one.
    committed.feature_rows = std::min(static_cast<int32_t>(outcome.path.size()),
                                      cut.kept + (cut.reason == FinishReason::kNone ? 0 : 1));
    committed.features.resize(static_cast<size_t>(committed.feature_rows * projection_hidden_));
    runner_->CopyPathFeatures(index, committed.feature_rows,
                              reinterpret_cast<BFloat16*>(committed.features.data()));
  }
}

void VerifierImpl::DeliverClosed() {
  for (const auto& sequence : closed_) {
    sequence->sink->OnClosed(*sequence->end);
  }
  closed_.clear();
}

void VerifierImpl::Deliver() {
  DeliverStep();
  DeliverBoundary();
}

void VerifierImpl::DeliverBoundary() {
  DeliverClosed();
  for (Sequence* sequence : announced_) {
    DeliverPhase(*sequence);
  }
  for (Sequence* sequence : with_features_) {
    DeliverFeatureChunk(*sequence);
  }
  announced_.clear();
  with_features_.clear();
}

void VerifierImpl::DeliverPromptLogProbs(Sequence& sequence) {
  while (sequence.log_probs.HasNews()) {
    PromptLogProbs::News news = sequence.log_probs.TakeNews(kMaxPromptLogProbs);
    sequence.sink->OnPromptLogProbs(news.first_position, std::move(news.log_probs));
  }
}

void VerifierImpl::DeliverPhase(Sequence& sequence) {
  DeliverPromptLogProbs(sequence);
  switch (sequence.phase) {
    case Phase::kNew:
    case Phase::kQueued:
      sequence.sink->OnProgress(ProgressState::kQueued, 0);
      break;
    case Phase::kPrefill:
      sequence.sink->OnProgress(ProgressState::kPrefill, sequence.computed);
      break;
    case Phase::kReady:
      sequence.sink->OnProgress(ProgressState::kWaiting, sequence.computed);
      sequence.sink->OnReady(budgets_.First(sequence, Clock::now()));
      break;
  }
}

// One chunk at each boundary, newest first, so that a long history does not delay the others' steps.
void VerifierImpl::DeliverFeatureChunk(Sequence& sequence) {
  const auto row_bytes = projection_hidden_ * static_cast<int64_t>(sizeof(BFloat16));
  const auto most_rows = static_cast<int32_t>(std::max<int64_t>(1, kFeatureChunkBytes / row_bytes));
  const int32_t first = std::max(sequence.features_begin, sequence.features_end - most_rows);
  const int32_t rows = sequence.features_end - first;
  std::vector<uint16_t> features(static_cast<size_t>(rows * projection_hidden_));
  sequence.features_end = first;
  const absl::Status read = runner_->ReadFeatures(sequence.pages.table(), first, rows,
                                                  reinterpret_cast<BFloat16*>(features.data()));
  if (!read.ok()) {
    device_fault_.Update(read);
    return;
  }
  sequence.sink->OnFeatures(first, rows, std::move(features));
}

void VerifierImpl::DeliverStepBegin() {
  for (const TreeInStep& tree : trees_) {
    Sequence& sequence = *tree.sequence;
    if (!sequence.round.begun) {
      sequence.round.begun = true;
      sequence.sink->OnProgress(ProgressState::kVerify, sequence.computed);
    }
  }
}

void VerifierImpl::DeliverTree(TreeInStep& tree) {
  if (!tree.deliver) {
    return;
  }
  const Sequence& sequence = *tree.sequence;
  // Said first: the owner's next Tree may come while OnCommitted runs.
  if (tree.waits) {
    sequence.sink->OnProgress(ProgressState::kWaiting, sequence.computed);
  }
  sequence.sink->OnCommitted(std::move(tree.committed));
}

void VerifierImpl::DeliverStep() {
  deliverers_.ParallelFor(static_cast<int64_t>(finished_trees_.size()), kTreesOfDeliverer,
                          [this](int64_t begin, int64_t end, int) {
                            for (int64_t i = begin; i < end; ++i) {
                              DeliverTree(finished_trees_[static_cast<size_t>(i)]);
                            }
                          });
  for (const ChunkInStep& chunk : finished_chunks_) {
    if (chunk.deliver) {
      DeliverPhase(*chunk.sequence);
    }
  }
  finished_trees_.clear();
  finished_chunks_.clear();
}

}  // namespace arborist::verifier
