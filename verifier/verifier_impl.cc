// The calls from outside: check, note, wake.
#include "verifier/verifier_impl.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

absl::Status FieldError(absl::string_view field, double value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status CheckTokens(absl::string_view field, const std::vector<TokenId>& tokens, int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (Raw(tokens[i]) < 0 || Raw(tokens[i]) >= vocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", i, "]=", Raw(tokens[i]), ", expected an id in [0, ", vocabulary, ")"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifierImpl::CheckOpen(const OpenArgs& args) const {
  if (args.prompt.empty()) {
    return absl::InvalidArgumentError("prompt has 0 tokens, expected at least 1");
  }
  const int64_t vocabulary = model_->config().vocab_size;
  RETURN_IF_ERROR(CheckTokens("prompt", args.prompt, vocabulary));
  RETURN_IF_ERROR(CheckTokens("output_so_far", args.output_so_far, vocabulary));
  RETURN_IF_ERROR(kernels::ValidateSamplingParams(args.sampling));
  RETURN_IF_ERROR(CheckControls(args, vocabulary));
  const auto output = static_cast<int64_t>(args.output_so_far.size());
  if (args.max_tokens <= output) {
    return FieldError("max_tokens", args.max_tokens,
                      absl::StrCat("more than the ", output, " tokens of output_so_far"));
  }
  const int64_t tokens = static_cast<int64_t>(args.prompt.size()) + output;
  if (tokens >= options_.max_context) {
    return FieldError("prompt + output_so_far", static_cast<double>(tokens),
                      absl::StrCat("fewer tokens than the context of ", options_.max_context));
  }
  if (args.tree_nodes < 0 || args.tree_nodes > options_.max_tree_nodes) {
    return FieldError("tree_nodes", args.tree_nodes,
                      absl::StrCat("a value in [0, ", options_.max_tree_nodes, "]"));
  }
  if (args.feature_window < 0) {
    return FieldError("feature_window", args.feature_window, "a value >= 0");
  }
  if (!args.projection_hash.empty() &&
      (!projection_.has_value() || args.projection_hash != projection_->hash())) {
    return absl::FailedPreconditionError(
        absl::StrCat("PROJECTION_MISMATCH: projection_hash=", args.projection_hash, ", expected ",
                     projection_.has_value() ? projection_->hash() : "none: no projection is configured"));
  }
  return absl::OkStatus();
}

absl::Status VerifierImpl::AddControls(const OpenArgs& args, int64_t most_tokens, Sequence& sequence) const {
  const int64_t vocabulary = model_->config().vocab_size;
  std::vector<std::unique_ptr<NodeMasks>> masks;
  if (args.constraint != nullptr) {
    auto constraint = std::make_unique<ConstraintMasks>(RulesOf(args, vocabulary), args.prompt);
    sequence.constraint = constraint.get();
    masks.push_back(std::move(constraint));
  }
  sequence.controls = ControlState::Create(args, std::move(masks), vocabulary, most_tokens);
  return sequence.constraint == nullptr ? absl::OkStatus() : sequence.constraint->CheckGoesOn();
}

absl::StatusOr<SequenceHandle> VerifierImpl::Open(OpenArgs args, SequenceSink* sink) {
  RETURN_IF_ERROR(CheckOpen(args));
  auto sequence = std::make_unique<Sequence>();
  const int64_t most_tokens =
      std::min<int64_t>(static_cast<int64_t>(args.prompt.size()) + args.max_tokens, options_.max_context);
  // The last root is the token before the last one, at row most_tokens - 2; its tree's rows follow it.
  sequence->worst_pages = KvCache::PagesFor(most_tokens - 1 + args.tree_nodes);
  if (sequence->worst_pages > total_pages()) {
    return FieldError("max_tokens", args.max_tokens,
                      absl::StrCat("prompt + max_tokens + tree_nodes within ", total_pages(),
                                   " KV pages, not ", sequence->worst_pages));
  }
  sequence->sink = sink;
  sequence->output_limit = static_cast<int64_t>(args.prompt.size()) + args.max_tokens;
  if (args.controls.prompt_log_probs) {
    sequence->log_probs = PromptLogProbs(static_cast<int32_t>(args.prompt.size()));
  }
  RETURN_IF_ERROR(AddControls(args, most_tokens, *sequence));
  sequence->tokens = std::move(args.prompt);
  // A step appends without allocating.
  sequence->tokens.reserve(static_cast<size_t>(most_tokens));
  sequence->tokens.insert(sequence->tokens.end(), args.output_so_far.begin(), args.output_so_far.end());
  args.prompt.clear();
  args.output_so_far.clear();
  sequence->follows_budget = args.automatic && args.tree_nodes > 0;
  sequence->args = std::move(args);

  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(device_status_);
  sequence->opened = Clock::now();
  ASSIGN_OR_RETURN(Sequence * inserted, table_.Insert(std::move(sequence)));
  Wake();
  return inserted->handle;
}

bool VerifierImpl::IsOpen(const SequenceKey& key) const {
  const std::lock_guard lock(mutex_);
  return table_.IsOpen(key);
}

absl::StatusOr<Sequence*> VerifierImpl::FindForRound(SequenceHandle handle) {
  Sequence* sequence = table_.Find(handle);
  if (sequence == nullptr || sequence->end.has_value() || sequence->finish_requested) {
    return absl::FailedPreconditionError("the sequence has ended, expected no Tree or Decode");
  }
  if (sequence->round.active) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", sequence->round.number, " is outstanding, expected no second Tree or Decode"));
  }
  return sequence;
}

void VerifierImpl::BeginRound(Sequence& sequence, int64_t round) {
  sequence.round.active = true;
  sequence.round.begun = false;
  sequence.round.number = round;
  sequence.round.submitted = Clock::now();
  sequence.ticket = next_ticket_++;
  BeginMasks(sequence);
  Wake();
}

void VerifierImpl::BeginMasks(Sequence& sequence) {
  if (sequence.constraint != nullptr) {
    const TokenTree& tree = sequence.round.tree;
    sequence.round.masks = sequence.constraint->Begin(tree.token, tree.parent);
    sequence.round.masks_missing = true;
  }
}

void VerifierImpl::MakeMasks(SequenceHandle handle, const std::shared_ptr<TreeMasks>& masks) {
  if (masks == nullptr) {
    return;
  }
  if (masks->MakeCached()) {
    TakeMasks(handle, masks);
  } else {
    mask_maker_.Make(handle, masks);
  }
}

void VerifierImpl::TakeMasks(SequenceHandle handle, const std::shared_ptr<TreeMasks>& masks) {
  const std::lock_guard lock(mutex_);
  Sequence* sequence = table_.Find(handle);
  if (sequence == nullptr || sequence->round.masks != masks) {
    return;  // it has closed meanwhile
  }
  sequence->round.masks_missing = false;
  if (const absl::Status status = sequence->constraint->status(); !status.ok()) {
    sequence->End(status);
  }
  Wake();
}

absl::Status VerifierImpl::SubmitTree(SequenceHandle handle, int64_t round, TokenTree tree) {
  std::unique_lock lock(mutex_);
  ASSIGN_OR_RETURN(Sequence * sequence, FindForRound(handle));
  RETURN_IF_ERROR(ValidateTokenTree(tree, sequence->tokens.back(),
                                    {.vocab_size = static_cast<int32_t>(model_->config().vocab_size),
                                     .max_budget = sequence->args.tree_nodes,
                                     .max_depth = kMaxTreeDepth}));
  sequence->round.cut_nodes = 0;
  if (options_.cut_trees_seed.has_value()) {
    std::mt19937_64 random(*options_.cut_trees_seed + cuts_++);
    const int kept = 1 + static_cast<int>(random() % static_cast<uint64_t>(tree.nodes()));
    sequence->round.cut_nodes = tree.nodes() - kept;
    CutToPrefix(tree, kept);
  }
  sequence->round.tree = std::move(tree);
  sequence->round.decode_left = 0;
  sequence->follows_budget = sequence->args.automatic;
  BeginRound(*sequence, round);
  const std::shared_ptr<TreeMasks> masks = sequence->round.masks;
  lock.unlock();
  MakeMasks(handle, masks);
  return absl::OkStatus();
}

absl::Status VerifierImpl::SubmitDecode(SequenceHandle handle, int64_t round, int max_tokens) {
  return BeginDecode(handle, round, max_tokens, /*until_drafting_pays=*/false);
}

absl::Status VerifierImpl::SubmitDecodeUntilDraftingPays(SequenceHandle handle, int64_t round,
                                                         int max_tokens) {
  return BeginDecode(handle, round, max_tokens, /*until_drafting_pays=*/true);
}

absl::Status VerifierImpl::BeginDecode(SequenceHandle handle, int64_t round, int max_tokens,
                                       bool until_drafting_pays) {
  if (max_tokens < 1) {
    return FieldError("decode.max_tokens", max_tokens, "at least 1");
  }
  std::unique_lock lock(mutex_);
  ASSIGN_OR_RETURN(Sequence * sequence, FindForRound(handle));
  sequence->round.cut_nodes = 0;
  sequence->round.tree = TokenTree::RootOnly(sequence->tokens.back());
  sequence->round.decode_left = max_tokens;
  sequence->round.until_drafting_pays = until_drafting_pays;
  // An owner that cannot draft asks for everything at once, one that lacks context for a few tokens.
  sequence->follows_budget = sequence->args.automatic && until_drafting_pays;
  BeginRound(*sequence, round);
  const std::shared_ptr<TreeMasks> masks = sequence->round.masks;
  lock.unlock();
  MakeMasks(handle, masks);
  return absl::OkStatus();
}

void VerifierImpl::Wake() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  wake_.notify_one();
}

void VerifierImpl::Finish(SequenceHandle handle) {
  const std::lock_guard lock(mutex_);
  Sequence* sequence = table_.Find(handle);
  if (sequence == nullptr) {
    return;  // it has closed meanwhile
  }
  sequence->finish_requested = true;
  if (!sequence->round.active) {
    sequence->End(absl::OkStatus());
  }
  Wake();
}

void VerifierImpl::Cancel(SequenceHandle handle) {
  const std::lock_guard lock(mutex_);
  if (Sequence* sequence = table_.Find(handle); sequence != nullptr) {
    sequence->End(absl::CancelledError("the owner cancelled the sequence"));
    Wake();
  }
}

void VerifierImpl::StartShadow() {
  shadow_ =
      std::make_unique<ShadowVerifier>(options_.shadow, model_->config().layers, cache_.planes(), device_);
  runner_->Shadow(shadow_.get());
}

double VerifierImpl::stalled_seconds() const {
  if (!busy_.load()) {
    return 0;
  }
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch());
  return static_cast<double>(now.count() - last_step_ns_.load()) * 1e-9;
}

absl::Status VerifierImpl::device_status() const {
  const std::lock_guard lock(mutex_);
  return device_status_;
}

}  // namespace arborist::verifier
