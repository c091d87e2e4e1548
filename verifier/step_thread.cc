// The step thread: close, admit, plan, step, apply.
#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "verifier/control_lists.h"
#include "verifier/device_step_runner.h"
#include "verifier/host_step_runner.h"
#include "verifier/self_test.h"
#include "verifier/verifier_impl.h"

namespace arborist::verifier {
namespace {

// Up to which the step thread looks for the next round before it sleeps.
constexpr size_t kFewSequences = 2;

int ThreadsOf(StreamView stream) { return stream.threads == nullptr ? 0 : stream.threads->threads(); }

bool TicketBefore(const Sequence* a, const Sequence* b) { return a->ticket < b->ticket; }

}  // namespace

absl::StatusOr<std::unique_ptr<VerifierImpl>> VerifierImpl::Create(const VerifierOptions& options,
                                                                   std::unique_ptr<Model> model,
                                                                   std::optional<Projection> projection,
                                                                   const kernels::KernelSet& kernels,
                                                                   Device& device) {
  std::optional<FeatureProjection> features;
  if (projection.has_value()) {
    ASSIGN_OR_RETURN(features, FeatureProjection::Create(*std::move(projection), options.max_rows, device));
  }
  ASSIGN_OR_RETURN(KvPlanes planes,
                   KvPlanes::Create(CacheShape(options, model->config(), features.has_value()), device));
  std::unique_ptr<VerifierImpl> made(
      new VerifierImpl(options, std::move(model), std::move(features), std::move(planes), device));
  FeatureProjection* projecting = made->projection_.has_value() ? &*made->projection_ : nullptr;
  if (device.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(std::unique_ptr<DeviceStepRunner> runner,
                     DeviceStepRunner::Create(CapacityOf(options), made->model_.get(), &made->cache_,
                                              projecting, kernels, device));
    RETURN_IF_ERROR(runner->RecordAll());
    made->runner_ = std::move(runner);
    return made;
  }
  made->runner_ = std::make_unique<HostStepRunner>(CapacityOf(options), made->model_.get(), &made->cache_,
                                                   projecting, kernels, device.stream());
  return made;
}

VerifierImpl::VerifierImpl(const VerifierOptions& options, std::unique_ptr<Model> model,
                           std::optional<FeatureProjection> projection, KvPlanes planes, Device& device)
    : options_(options),
      model_(std::move(model)),
      device_(device),
      spin_(options.spin, /*most_waiters=*/1),
      limits_{.max_rows = options.max_rows,
              .max_logits_rows = options.max_logits_rows,
              .max_tree_rows = options.max_tree_nodes + 1,
              .prefill_chunk = options.prefill_chunk,
              .max_history_entries =
                  ControlCapacity(CapacityOf(options), model_->config().vocab_size).history_entries,
              .row_bounds = device.kind() == DeviceKind::kCuda
                                ? StepSizes(CapacityOf(options)).BoundsWithPrompts()
                                : std::vector<int>()},
      projection_(std::move(projection)),
      projection_hidden_(projection_.has_value() ? projection_->hidden() : 0),
      cache_(std::move(planes), options.max_logits_rows, ThreadsOf(device.stream())),
      budgets_(StepSizes(CapacityOf(options)).BoundsOfTreesAlone(), options.max_logits_rows),
      table_(options.max_queue),
      deliverers_(options.deliverers),
      mask_maker_([this](SequenceHandle sequence, const std::shared_ptr<TreeMasks>& masks) {
        TakeMasks(sequence, masks);
      }) {
  const auto sequences = static_cast<size_t>(options.max_sequences);
  for (auto* list : {&announced_, &queue_, &with_features_, &waiting_trees_, &waiting_prompts_}) {
    list->reserve(sequences + static_cast<size_t>(options.max_queue));
  }
  waiting_.reserve(sequences);
  prompts_.reserve(sequences);
  plan_.trees.reserve(sequences);
  plan_.chunks.reserve(sequences);
  trees_.reserve(sequences);
  chunks_.reserve(sequences);
  finished_trees_.reserve(sequences);
  finished_chunks_.reserve(sequences);
  step_trees_.reserve(sequences);
  step_chunks_.reserve(sequences);
  run_.reserve(static_cast<size_t>(kMaxTreeDepth) + 1);
}

VerifierImpl::~VerifierImpl() {
  mask_maker_.Stop();
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    Wake();
  }
  thread_.join();
}

absl::Status VerifierImpl::SelfTest() {
  return RunSelfTest(CapacityOf(options_), options_.max_context, std::random_device{}(), *model_, cache_,
                     device_);
}

void VerifierImpl::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void VerifierImpl::Loop() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (finished_trees_.empty() && finished_chunks_.empty()) {
        AwaitWork(lock);
      }
      if (stopping_) {
        break;
      }
      MarkProgress();
      busy_ = true;
      RemoveEnded();
      AdmitHeirs();
      AdmitQueue();
      Plan();
    }
    if (!with_features_.empty()) {
      Deliver();  // features are read between steps
    }
    if (!trees_.empty() || !chunks_.empty()) {
      RunStep();  // and deliver meanwhile
    } else {
      Deliver();
    }
    if (!device_fault_.ok() && !device_failed_) {
      FailDevice();
    }
  }
  Deliver();
  CloseAll();
}

void VerifierImpl::AwaitWork(std::unique_lock<std::mutex>& lock) {
  busy_ = false;
  if (!stopping_ && !HasWork() && table_.all().size() <= kFewSequences) {
    const uint64_t before = calls_.load(std::memory_order_relaxed);
    lock.unlock();
    spin_.Until([&] { return calls_.load(std::memory_order_relaxed) != before; });
    lock.lock();
  }
  wake_.wait(lock, [this] { return stopping_ || HasWork(); });
}

void VerifierImpl::FailDevice() {
  Deliver();
  device_failed_ = true;
  {
    const std::lock_guard lock(mutex_);
    device_status_ = absl::UnavailableError(absl::StrCat("the device failed: ", device_fault_.message()));
    CloseTable(device_fault_);
  }
  DeliverClosed();
  if (options_.on_device_failure) {
    options_.on_device_failure(device_fault_);
  }
}

void VerifierImpl::MarkProgress() {
  last_step_ns_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

bool VerifierImpl::HasWork() const {
  return std::any_of(table_.all().begin(), table_.all().end(), [](const auto& entry) {
    const Sequence& sequence = *entry.second;
    return sequence.end.has_value() || sequence.phase == Phase::kNew || sequence.phase == Phase::kPrefill ||
           sequence.WaitsForStep() || sequence.features_end > sequence.features_begin;
  });
}

void VerifierImpl::RemoveEnded() {
  closed_.clear();
  for (auto entry = table_.all().begin(); entry != table_.all().end();) {
    const Sequence& sequence = *entry->second;
    ++entry;
    if (sequence.end.has_value()) {
      closed_.push_back(table_.Remove(sequence.handle));
    }
  }
}

void VerifierImpl::Plan() {
  with_features_.clear();
  waiting_trees_.clear();
  waiting_prompts_.clear();
  budgets_.BeginCount();
  int running = 0;
  for (const auto& [handle, sequence] : table_.all()) {
    if (sequence->features_end > sequence->features_begin) {
      with_features_.push_back(sequence.get());
    }
    if (sequence->phase == Phase::kPrefill || sequence->phase == Phase::kReady) {
      budgets_.Count(*sequence);
      ++running;
    }
    if (sequence->phase == Phase::kPrefill) {
      waiting_prompts_.push_back(sequence.get());
    } else if (sequence->WaitsForStep()) {
      waiting_trees_.push_back(sequence.get());
    }
  }
  budgets_.EndCount(Clock::now());
  running_.store(running, std::memory_order_relaxed);
  queued_.store(static_cast<int>(table_.all().size()) - running, std::memory_order_relaxed);
  std::sort(waiting_trees_.begin(), waiting_trees_.end(), TicketBefore);
  std::sort(waiting_prompts_.begin(), waiting_prompts_.end(), TicketBefore);
  waiting_.clear();
  prompts_.clear();
  for (const Sequence* sequence : waiting_trees_) {
    waiting_.push_back({.rows = sequence->round.tree.nodes(),
                        .history_entries = sequence->controls == nullptr
                                               ? 0
                                               : std::ssize(sequence->controls->step().history)});
  }
  for (const Sequence* sequence : waiting_prompts_) {
    const int32_t owed = sequence->log_probs.owed();
    prompts_.push_back(
        {.left = owed > 0 ? owed : sequence->root_position() - sequence->computed,
         .scored = owed > 0,
         .before_trees = waiting_trees_.empty() || TicketBefore(sequence, waiting_trees_.front())});
  }
  PlanStep(limits_, waiting_, prompts_, plan_);
  trees_.clear();
  chunks_.clear();
  for (const int index : plan_.trees) {
    trees_.push_back({.sequence = waiting_trees_[index], .committed = {}});
  }
  for (const StepPlan::Share& share : plan_.chunks) {
    chunks_.push_back(
        {.sequence = waiting_prompts_[share.index], .rows = share.rows, .scored = share.scored});
  }
}

void VerifierImpl::RunStep() {
  step_begin_ = Clock::now();
  DeliverStepBegin();
  step_trees_.clear();
  step_chunks_.clear();
  for (const TreeInStep& tree : trees_) {
    const Sequence& sequence = *tree.sequence;
    KvCache::CheckWritable(sequence.pages, sequence.root_position(), sequence.round.tree.nodes());
    step_trees_.push_back({.page_table = sequence.pages.table(),
                           .root_position = sequence.root_position(),
                           .token = sequence.round.tree.token,
                           .parent = sequence.round.tree.parent,
                           .sampling = sequence.args.sampling,
                           .controls = sequence.controls == nullptr ? nullptr : &sequence.controls->step()});
  }
  for (const ChunkInStep& chunk : chunks_) {
    const Sequence& sequence = *chunk.sequence;
    const std::span<const TokenId> tokens = sequence.tokens;
    KvCache::CheckWritable(sequence.pages, sequence.computed, chunk.rows);
    step_chunks_.push_back({.page_table = sequence.pages.table(),
                            .first_position = sequence.computed,
                            .tokens = tokens.subspan(sequence.computed, chunk.rows),
                            .next = tokens.subspan(sequence.computed + 1, chunk.scored ? chunk.rows : 0)});
  }
  if (options_.before_step) {
    options_.before_step(step_trees_, step_chunks_, cache_.planes(), device_);
  }
  step_status_ = runner_->Run(step_trees_, step_chunks_, [this] { Deliver(); });
  Deliver();  // where it failed before that
  if (device_.kind() == DeviceKind::kCuda) {
    device_fault_.Update(step_status_);
  } else if (step_status_.ok()) {  // a CPU that fails does so between steps, where a test planted it
    step_status_ = device_.Synchronize();
    device_fault_.Update(step_status_);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - step_begin_).count();
  if (step_status_.ok()) {
    DecideBudgets();
  }
  for (int i = 0; i < static_cast<int>(trees_.size()) && step_status_.ok(); ++i) {
    BuildCommitted(i, seconds);
  }
  {
    const std::lock_guard lock(mutex_);
    for (int i = 0; i < static_cast<int>(trees_.size()); ++i) {
      ApplyTree(i);
    }
    for (int i = 0; i < static_cast<int>(chunks_.size()); ++i) {
      ApplyChunk(i);
    }
  }
  MarkProgress();
  NoteStepCost();
  ReportStep(seconds);
  std::swap(trees_, finished_trees_);
  std::swap(chunks_, finished_chunks_);
}

void VerifierImpl::ApplyTree(int index) {
  TreeInStep& tree = trees_[index];
  Sequence& sequence = *tree.sequence;
  const absl::Status status = step_status_.ok() ? runner_->outcome(index).status : step_status_;
  if (!status.ok()) {
    sequence.End(status);
    return;
  }
  Committed& committed = tree.committed;
  const auto path = static_cast<int32_t>(runner_->outcome(index).path.size());
  const int32_t in_cache = sequence.root_position() + path;
  sequence.tokens.insert(sequence.tokens.end(), committed.tokens.begin(), committed.tokens.end());
  // Of a run that goes on the last token is the next root, to be computed even if a cut left its row behind.
  const bool finished = committed.finish_reason != FinishReason::kNone;
  sequence.computed = std::min(in_cache, static_cast<int32_t>(sequence.tokens.size()) - (finished ? 0 : 1));
  if (sequence.controls != nullptr) {
    sequence.controls->Commit(committed.tokens);
  }

  if (sequence.constraint != nullptr && !sequence.constraint->status().ok()) {
    sequence.End(sequence.constraint->status());
    return;
  }

  Round& round = sequence.round;
  round.decode_left = std::max(0, round.decode_left - static_cast<int>(committed.tokens.size()));
  const bool drafting_pays = round.until_drafting_pays && committed.next_budget > 0;
  round.active = round.decode_left > 0 && !finished && !drafting_pays;
  committed.last = !round.active;
  tree.deliver = !sequence.end.has_value();
  tree.waits = !round.active && !finished;
  if (round.active) {
    round.tree.token[0] = sequence.tokens.back();
    round.submitted = Clock::now();
    sequence.ticket = next_ticket_++;
    BeginMasks(sequence);
    if (round.masks_missing && round.masks->MakeCached()) {
      round.masks_missing = false;
      if (const absl::Status masks = sequence.constraint->status(); !masks.ok()) {
        sequence.End(masks);
      }
    } else if (round.masks_missing) {
      mask_maker_.Make(sequence.handle, round.masks);
    }
  } else if (finished || sequence.finish_requested) {
    sequence.End(absl::OkStatus());
  }
}

void VerifierImpl::ApplyChunk(int index) {
  ChunkInStep& chunk = chunks_[index];
  Sequence& sequence = *chunk.sequence;
  const absl::Status status =
      step_status_.ok() && chunk.scored ? runner_->chunk_outcome(index).status : step_status_;
  if (!status.ok()) {
    sequence.End(status);
    return;
  }
  if (chunk.scored) {
    sequence.log_probs.Add(runner_->chunk_outcome(index).log_probs);
  }
  sequence.computed += chunk.rows;
  sequence.ticket = next_ticket_++;
  BecomeReadyIfComputed(sequence);
  chunk.deliver = !sequence.end.has_value();
}

void VerifierImpl::CloseAll() {
  {
    const std::lock_guard lock(mutex_);
    CloseTable(absl::UnavailableError("the verifier is shutting down"));
  }
  DeliverClosed();
}

void VerifierImpl::CloseTable(const absl::Status& status) {
  closed_.clear();
  while (!table_.all().empty()) {
    Sequence& sequence = *table_.all().begin()->second;
    sequence.End(status);
    closed_.push_back(table_.Remove(sequence.handle));
  }
}

}  // namespace arborist::verifier
