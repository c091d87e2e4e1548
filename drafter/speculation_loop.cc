// The system's story: draft -> tree -> verify -> emit.
#include "drafter/speculation_loop.h"

#include <chrono>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"
#include "drafter/draft_filter.h"
#include "drafter/drafter_metrics.h"
#include "drafter/late_features.h"
#include "drafter/round_clock.h"
#include "drafter/round_rules.h"

namespace arborist::drafter {
namespace {

constexpr std::chrono::milliseconds kFeaturePatience{150};

class SpeculationLoop {
 public:
  SpeculationLoop(const SpeculationRequest& request, const SpeculationOptions& options, DraftContext& context,
                  VerifierStream& verifier, SpeculationSink& sink)
      : request_(request),
        options_(options),
        context_(context),
        verifier_(verifier),
        sink_(sink),
        late_features_(options.feature_window),
        filter_(request.constraint, std::span(request.tokens).first(request.prompt_tokens),
                std::span(request.tokens).subspan(request.prompt_tokens)) {}

  absl::Status Run() {
    RETURN_IF_ERROR(DrafterFault(context_.AppendTokens(0, request_.tokens)));
    next_position_ = static_cast<int32_t>(request_.tokens.size());
    RETURN_IF_ERROR(AwaitPrefill());
    while (finish_reason_ == FinishReason::kNone) {
      ++round_;
      const int nodes = NodesWanted(request_, options_, next_budget_);
      RETURN_IF_ERROR(nodes > 0 && context_.Ready() ? TreeRound(nodes) : DecodeRound(nodes == 0));
    }
    verifier_.Stop();
    return absl::OkStatus();
  }

 private:
  // Features get a moment to follow the prompt, so that the first round can be a tree, if a tree pays.
  absl::Status AwaitPrefill() {
    std::optional<Clock::time_point> read;  // the whole prompt
    while (!read.has_value() ||
           (Drafting() && !context_.Ready() && Clock::now() - *read < kFeaturePatience)) {
      ASSIGN_OR_RETURN(VerifierEvent event, verifier_.Next());
      if (const auto* progress = std::get_if<VerifierProgress>(&event.message)) {
        const bool queued = progress->state == VerifierState::kQueued;
        clock_.Opening(queued, event.received);
        next_budget_ = progress->next_budget.value_or(next_budget_);
        if (progress->state == VerifierState::kWaiting && !read.has_value()) {
          read = event.received;
        }
        sink_.OnState(queued ? SpeculationState::kQueued : SpeculationState::kPrefill,
                      progress->prompt_tokens_done);
      } else if (auto* features = std::get_if<FeatureRows>(&event.message)) {
        RETURN_IF_ERROR(Absorb(std::move(*features)));
      } else if (auto* log_probs = std::get_if<PromptLogProbs>(&event.message)) {
        sink_.OnPromptLogProbs(std::move(*log_probs));
      } else {
        return VerifierFault("committed tokens came before the first round");
      }
    }
    return absl::OkStatus();
  }

  absl::Status TreeRound(int nodes) {
    sink_.OnState(SpeculationState::kDraft, next_position_);
    clock_.BeginDraft();
    const ProposeArgs args = ProposeArgsOf(request_, options_, nodes);
    absl::StatusOr<TokenTree> tree = context_.Propose(filter_.Wider(args));
    RETURN_IF_ERROR(DrafterFault(tree.status()));
    tree = filter_.Filter(*tree, args);
    const double draft_seconds = clock_.EndDraft();
    if (options_.metrics != nullptr) {
      options_.metrics->Drafted(draft_seconds, *tree);
    }
    RETURN_IF_ERROR(StallAt(FaultPoint::kBeforeTree));
    clock_.Sending();
    verifier_.SendTree(round_, *tree, draft_seconds);
    sink_.OnState(SpeculationState::kVerify, next_position_);
    RETURN_IF_ERROR(StallAt(FaultPoint::kAfterTreeSent));
    const absl::Status answered = AwaitRound(&*tree);
    if (options_.metrics != nullptr && IsRefusedTree(answered)) {
      options_.metrics->TreeRefused();
    }
    return RefusedTreeIsOurs(answered);
  }

  // Drafting does not pay until the verifier says so, or the proposer lacks context.
  absl::Status DecodeRound(bool until_drafting_pays) {
    sink_.OnState(SpeculationState::kVerify, next_position_);
    clock_.Sending();
    verifier_.SendDecode(round_, until_drafting_pays ? options_.plain_decode_tokens : options_.decode_tokens,
                         until_drafting_pays);
    return AwaitRound(/*tree=*/nullptr);
  }

  absl::Status AwaitRound(const TokenTree* tree) {
    for (bool last = false; !last;) {
      ASSIGN_OR_RETURN(VerifierEvent event, verifier_.Next());
      if (auto* features = std::get_if<FeatureRows>(&event.message)) {
        RETURN_IF_ERROR(Absorb(std::move(*features)));
      } else if (auto* committed = std::get_if<CommittedTokens>(&event.message)) {
        last = committed->last;
        RETURN_IF_ERROR(Emit(std::move(*committed), tree, event.received));
      }
    }
    return absl::OkStatus();
  }

  // Tokens go to the coordinator before our own context takes them in: the client waits for them (beside a
  // GPU the reactor holds them until the next tree has left).
  absl::Status Emit(CommittedTokens committed, const TokenTree* tree, Clock::time_point received) {
    RETURN_IF_ERROR(CheckCommitted(committed, request_.epoch, round_, next_position_));
    RETURN_IF_ERROR(StallAt(FaultPoint::kBeforeTokensForwarded));
    next_position_ += static_cast<int32_t>(committed.tokens.size());
    next_budget_ = committed.next_budget;
    finish_reason_ = committed.finish_reason;
    if (options_.metrics != nullptr) {
      options_.metrics->Answered(clock_.SinceSending(received), tree != nullptr);
    }
    sink_.OnTokens(
        TokensOf(committed, tree, clock_.Take(committed.queue_seconds, committed.verify_seconds, received)));
    if (finish_reason_ != FinishReason::kNone) {
      return absl::OkStatus();
    }
    filter_.Append(committed.tokens);
    RETURN_IF_ERROR(DrafterFault(context_.AppendTokens(committed.first_position, committed.tokens)));
    return Absorb(std::move(committed.features));
  }

  bool Drafting() const { return NodesWanted(request_, options_, next_budget_) > 0; }

  // While nothing is drafted features wait: what follows from them would take the verifier's time.
  absl::Status Absorb(FeatureRows features) {
    late_features_.Keep(std::move(features));
    if (!Drafting()) {
      return absl::OkStatus();
    }
    clock_.BeginDraft();
    const absl::Status status = late_features_.GiveTo(context_);
    clock_.EndDraft();
    return DrafterFault(status);
  }

  absl::Status StallAt(FaultPoint point) {
    return ShallStall(options_.fault, point, round_) ? StallForEver(verifier_, sink_) : absl::OkStatus();
  }

  const SpeculationRequest& request_;
  const SpeculationOptions& options_;
  DraftContext& context_;
  VerifierStream& verifier_;
  SpeculationSink& sink_;
  LateFeatures late_features_;
  DraftFilter filter_;
  RoundClock clock_;
  int64_t round_ = 0;
  int32_t next_position_ = 0;
  int next_budget_ = kMaxTreeBudget;
  FinishReason finish_reason_ = FinishReason::kNone;
};

}  // namespace

absl::Status Speculate(const SpeculationRequest& request, const SpeculationOptions& options,
                       DraftContext& context, VerifierStream& verifier, SpeculationSink& sink) {
  return SpeculationLoop(request, options, context, verifier, sink).Run();
}

}  // namespace arborist::drafter
