#include "tests/exactness/round_driver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "common/base/status_macros.h"

namespace arborist::tests {
namespace {

using verifier::Committed;
using verifier::FinishReason;
using verifier::OpenArgs;
using verifier::SequenceHandle;
using verifier::Verifier;

constexpr auto kPatience = std::chrono::seconds(60);  // against hangs only

// One stream to the verifier, made blocking.
class Stream : public verifier::SequenceSink {
 public:
  struct Features {
    int32_t first_position;
    int32_t rows;
    std::vector<uint16_t> values;
  };

  static absl::StatusOr<std::unique_ptr<Stream>> Open(Verifier& verifier, OpenArgs args) {
    auto stream = std::make_unique<Stream>(verifier);
    ASSIGN_OR_RETURN(stream->handle_, verifier.Open(std::move(args), stream.get()));
    RETURN_IF_ERROR(stream->Wait([&] { return stream->ready_; }));
    return stream;
  }

  explicit Stream(Verifier& verifier) : verifier_(verifier) {}

  // Waits until the verifier lets go of this sink: after that it may die.
  ~Stream() override {
    if (handle_ != 0 || ready_) {
      verifier_.Cancel(handle_);
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kPatience, [&] { return closed_; });
    }
  }

  SequenceHandle handle() const { return handle_; }

  absl::StatusOr<Committed> NextCommitted() {
    RETURN_IF_ERROR(Wait([&] { return !committed_.empty(); }));
    std::lock_guard lock(mutex_);
    Committed next = std::move(committed_.front());
    committed_.pop_front();
    return next;
  }

  std::vector<Features> TakeFeatures() {
    std::lock_guard lock(mutex_);
    return std::exchange(features_, {});
  }

  // All of them, once the stream is open.
  std::vector<float> TakePromptLogProbs() {
    std::lock_guard lock(mutex_);
    return std::exchange(prompt_log_probs_, {});
  }

  void OnProgress(verifier::ProgressState, int) override {}
  void OnPromptLogProbs(int32_t, std::vector<float> log_probs) override {
    Change([&] { prompt_log_probs_.insert(prompt_log_probs_.end(), log_probs.begin(), log_probs.end()); });
  }
  void OnReady(int) override {
    Change([&] { ready_ = true; });
  }
  void OnFeatures(int32_t first_position, int32_t rows, std::vector<uint16_t> values) override {
    Change([&] { features_.push_back({first_position, rows, std::move(values)}); });
  }
  void OnCommitted(Committed committed) override {
    Change([&] { committed_.push_back(std::move(committed)); });
  }
  void OnClosed(absl::Status status) override {
    Change([&] {
      closed_ = true;
      status_ = std::move(status);
    });
  }

 private:
  template <typename Action>
  void Change(const Action& action) {
    // Notified under the lock: the destructor may run as soon as the lock is free.
    std::lock_guard lock(mutex_);
    action();
    changed_.notify_all();
  }

  template <typename Condition>
  absl::Status Wait(const Condition& condition) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return closed_ || condition(); })) {
      return absl::DeadlineExceededError("the verifier did not answer");
    }
    if (condition()) {
      return absl::OkStatus();
    }
    return status_.ok() ? absl::CancelledError("the stream ended") : status_;
  }

  Verifier& verifier_;
  SequenceHandle handle_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
  bool closed_ = false;
  absl::Status status_;
  std::deque<Committed> committed_;
  std::vector<float> prompt_log_probs_;
  std::vector<Features> features_;
};

// What the coordinator knows of the answer, and what the gate counts.
class Answer {
 public:
  explicit Answer(const GateRequest& request) : request_(request) {}

  OpenArgs NextOpen(const drafter::Proposer* proposer, int tree_nodes) {
    ++result.attaches;
    OpenArgs args;
    args.key = {request_.id, request_.sampling.sample_index};
    args.epoch = ++epoch_;
    args.prompt = request_.prompt;
    args.output_so_far = result.tokens;
    args.sampling = request_.sampling;
    args.controls = request_.controls;
    args.stop_ids = request_.stop_ids;
    args.constraint = request_.constraint;
    args.max_tokens = request_.max_tokens;
    args.tree_nodes = tree_nodes;
    if (proposer != nullptr && proposer->needs_features()) {
      args.feature_window = proposer->feature_window();
      args.projection_hash = proposer->projection_hash();
    }
    return args;
  }

  absl::Status Append(const Committed& committed) {
    const size_t expected = request_.prompt.size() + result.tokens.size();
    if (static_cast<size_t>(committed.first_position) != expected) {
      return absl::InternalError("a gap or a repeat in the committed positions");
    }
    result.tokens.insert(result.tokens.end(), committed.tokens.begin(), committed.tokens.end());
    result.log_probs.insert(result.log_probs.end(), committed.log_probs.begin(), committed.log_probs.end());
    result.top_log_probs.insert(result.top_log_probs.end(), committed.top_log_probs.begin(),
                                committed.top_log_probs.end());
    result.finish_reason = committed.finish_reason;
    return absl::OkStatus();
  }

  // At each attachment.
  void AppendPrompt(const std::vector<float>& log_probs) {
    result.prompt_log_probs.insert(result.prompt_log_probs.end(), log_probs.begin(), log_probs.end());
  }

  bool finished() const { return result.finish_reason != FinishReason::kNone; }
  std::vector<TokenId> All() const {
    std::vector<TokenId> all = request_.prompt;
    all.insert(all.end(), result.tokens.begin(), result.tokens.end());
    return all;
  }

  GateResult result;

 private:
  const GateRequest& request_;
  int64_t epoch_ = 0;
};

absl::Status DecodePlainly(Stream& stream, Verifier& verifier, Answer& answer, int64_t round, int tokens) {
  RETURN_IF_ERROR(verifier.SubmitDecode(stream.handle(), round, tokens));
  for (bool last = false; !last;) {
    ASSIGN_OR_RETURN(const Committed committed, stream.NextCommitted());
    RETURN_IF_ERROR(answer.Append(committed));
    last = committed.last;
  }
  return absl::OkStatus();
}

// Walks the tree along what was committed and counts what kind of path it was.
void CountRound(const TokenTree& tree, const Committed& committed, GateResult& result) {
  ++result.rounds;
  result.verifying_rounds += committed.verified_nodes > 0 ? 1 : 0;
  result.verified_nodes += committed.verified_nodes;
  result.cut_nodes += committed.cut_nodes;
  result.committed_by_trees += static_cast<int64_t>(committed.tokens.size());
  result.compacted_rounds += committed.compacted ? 1 : 0;
  int current = 0;
  bool off_spine = false;
  for (size_t i = 0; i + 1 < committed.tokens.size(); ++i) {
    int first_child = -1;
    int match = -1;
    for (int node = current + 1; node < tree.nodes(); ++node) {
      if (tree.parent[node] != current) {
        continue;
      }
      first_child = first_child < 0 ? node : first_child;
      match = tree.token[node] == committed.tokens[i] ? node : match;
    }
    if (match < 0) {
      break;
    }
    off_spine = off_spine || match != first_child;
    current = match;
  }
  result.off_spine_rounds += off_spine ? 1 : 0;
}

absl::Status FeedFeatures(drafter::DraftContext& context, int32_t first_position, int32_t rows,
                          const std::vector<uint16_t>& values) {
  if (rows == 0) {
    return absl::OkStatus();
  }
  std::vector<BFloat16> features(values.size());
  std::transform(values.begin(), values.end(), features.begin(),
                 [](uint16_t bits) { return BFloat16{bits}; });
  return context.AppendFeatures(first_position, rows, features);
}

// One drafter's life: from its attachment to the end of the answer, its death or a refused tree.
class DrafterLife {
 public:
  DrafterLife(Verifier& verifier, drafter::Proposer& proposer, const GateRequest& request,
              const SpeculationPlan& plan, Answer& answer)
      : verifier_(verifier), proposer_(proposer), request_(request), plan_(plan), answer_(answer) {}

  // Returns when the answer is finished, the drafter is gone, or `leave_at` tokens are there.
  absl::Status Live(int leave_at) {
    ASSIGN_OR_RETURN(context_, proposer_.NewContext());
    ASSIGN_OR_RETURN(stream_, Stream::Open(verifier_, answer_.NextOpen(&proposer_, plan_.nodes)));
    answer_.AppendPrompt(stream_->TakePromptLogProbs());
    const std::vector<TokenId> all = answer_.All();
    RETURN_IF_ERROR(context_->AppendTokens(0, all));
    for (int64_t round = 1; !answer_.finished() && static_cast<int>(answer_.result.tokens.size()) < leave_at;
         ++round) {
      for (const Stream::Features& features : stream_->TakeFeatures()) {
        RETURN_IF_ERROR(FeedFeatures(*context_, features.first_position, features.rows, features.values));
      }
      if (!context_->Ready()) {
        RETURN_IF_ERROR(verifier_.SubmitDecode(stream_->handle(), round, 1));
        ASSIGN_OR_RETURN(const Committed committed, stream_->NextCommitted());
        RETURN_IF_ERROR(Take(committed));
        continue;
      }
      ASSIGN_OR_RETURN(const bool alive, Round(round));
      if (!alive) {
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

 private:
  // One tree; false when the drafter died or its tree was refused.
  absl::StatusOr<bool> Round(int64_t round) {
    const bool dies = plan_.kill != KillPoint::kNever && round % plan_.kill_every == 0;
    if (dies && plan_.kill == KillPoint::kBeforeTree) {
      return false;
    }
    const drafter::ProposeArgs args{.shape = plan_.shape,
                                    .nodes = plan_.nodes,
                                    .temperature = request_.sampling.temperature,
                                    .seed = request_.sampling.seed,
                                    .sample_index = request_.sampling.sample_index};
    ASSIGN_OR_RETURN(TokenTree tree, context_->Propose(args));
    const absl::Status submitted = verifier_.SubmitTree(stream_->handle(), round, tree);
    if (absl::IsInvalidArgument(submitted)) {
      ++answer_.result.refused_trees;
      return false;
    }
    RETURN_IF_ERROR(submitted);
    if (dies && plan_.kill == KillPoint::kAfterTreeSent) {
      return false;
    }
    ASSIGN_OR_RETURN(const Committed committed, stream_->NextCommitted());
    if (dies && plan_.kill == KillPoint::kBeforeTokensForwarded) {
      return false;
    }
    CountRound(tree, committed, answer_.result);
    RETURN_IF_ERROR(Take(committed));
    return true;
  }

  absl::Status Take(const Committed& committed) {
    RETURN_IF_ERROR(answer_.Append(committed));
    if (answer_.finished()) {
      return absl::OkStatus();  // a run cut by the end has features of its last token, which nobody drafts
                                // from
    }
    RETURN_IF_ERROR(context_->AppendTokens(committed.first_position, committed.tokens));
    return FeedFeatures(*context_, committed.feature_position, committed.feature_rows, committed.features);
  }

  Verifier& verifier_;
  drafter::Proposer& proposer_;
  const GateRequest& request_;
  const SpeculationPlan& plan_;
  Answer& answer_;
  std::unique_ptr<drafter::DraftContext> context_;
  std::unique_ptr<Stream> stream_;
};

// The coordinator's fallback: a new epoch, plain decoding for a few tokens.
absl::Status FallBack(Verifier& verifier, Answer& answer, int tokens) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, Stream::Open(verifier, answer.NextOpen(nullptr, 0)));
  answer.AppendPrompt(stream->TakePromptLogProbs());
  return DecodePlainly(*stream, verifier, answer, 1, tokens);
}

}  // namespace

absl::StatusOr<GateResult> RunPlain(Verifier& verifier, const GateRequest& request) {
  Answer answer(request);
  while (!answer.finished()) {
    RETURN_IF_ERROR(FallBack(verifier, answer, request.max_tokens));
  }
  return answer.result;
}

absl::StatusOr<GateResult> RunSpeculative(Verifier& verifier, drafter::Proposer& proposer,
                                          const GateRequest& request, const SpeculationPlan& plan) {
  Answer answer(request);
  Verifier* current = &verifier;
  while (!answer.finished()) {
    const bool will_move = plan.resume_on != nullptr && current == &verifier;
    const int leave_at = will_move ? request.max_tokens / 2 : request.max_tokens;
    if (will_move && static_cast<int>(answer.result.tokens.size()) >= leave_at) {
      current = plan.resume_on;
      continue;
    }
    {
      DrafterLife life(*current, proposer, request, plan, answer);
      RETURN_IF_ERROR(life.Live(leave_at));
    }
    const bool lost = !answer.finished() && static_cast<int>(answer.result.tokens.size()) < leave_at;
    if (lost) {
      RETURN_IF_ERROR(FallBack(*current, answer, 3));
    }
  }
  return answer.result;
}

void AddCounts(const GateResult& from, GateResult& to) {
  to.rounds += from.rounds;
  to.verifying_rounds += from.verifying_rounds;
  to.verified_nodes += from.verified_nodes;
  to.cut_nodes += from.cut_nodes;
  to.committed_by_trees += from.committed_by_trees;
  to.off_spine_rounds += from.off_spine_rounds;
  to.compacted_rounds += from.compacted_rounds;
  to.refused_trees += from.refused_trees;
  to.attaches += from.attaches;
}

}  // namespace arborist::tests
