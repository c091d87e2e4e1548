#include "verifier/device_step_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "verifier/batch_builder.h"
#include "verifier/control_lists.h"
#include "verifier/shadow_verifier.h"
#include "verifier/step_memory.h"
#include "verifier/top_list.h"

namespace arborist::verifier {
namespace {

absl::Status InStep(const absl::Status& status, const StepSize& size) {
  return status.ok() ? status
                     : absl::Status(status.code(),
                                    absl::StrCat("verify step of ", size.rows, " rows, ", size.logits_rows,
                                                 " with logits: ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStepRunner>> DeviceStepRunner::Create(const StepCapacity& capacity,
                                                                           Model* model, KvCache* cache,
                                                                           FeatureProjection* projection,
                                                                           const kernels::KernelSet& kernels,
                                                                           Device& device) {
  ASSIGN_OR_RETURN(StepInput input, StepInput::Create(capacity, device));
  ASSIGN_OR_RETURN(ControlInput controls, ControlInput::Create(capacity, model->config().vocab_size, device));
  std::unique_ptr<DeviceStepRunner> runner(new DeviceStepRunner(
      capacity, model, cache, projection, kernels, device, std::move(input), std::move(controls)));
  RETURN_IF_ERROR(runner->Allocate());
  return runner;
}

DeviceStepRunner::DeviceStepRunner(const StepCapacity& capacity, Model* model, KvCache* cache,
                                   FeatureProjection* projection, const kernels::KernelSet& kernels,
                                   Device& device, StepInput input, ControlInput controls)
    : capacity_(capacity),
      sizes_(capacity),
      model_(model),
      cache_(cache),
      projection_(projection),
      kernels_(kernels),
      device_(device),
      hidden_(projection == nullptr ? 0 : projection->hidden()),
      input_(std::move(input)),
      controls_(std::move(controls)),
      chunk_outcomes_(static_cast<size_t>(capacity.max_sequences)),
      outcomes_(static_cast<size_t>(capacity.max_sequences)),
      row_log_prob_(static_cast<size_t>(capacity.max_logits_rows)),
      path_log_prob_(static_cast<size_t>(capacity.max_logits_rows)),
      path_top_(static_cast<size_t>(capacity.max_logits_rows) * kMaxTopLogProbs) {
  batch_.Reserve(capacity.max_rows, capacity.max_sequences, capacity.max_pages_per_sequence);
  sampling_.reserve(static_cast<size_t>(capacity.max_sequences));
}

absl::Status DeviceStepRunner::Allocate() {
  const StepMemory memory = StepMemoryFor(capacity_, model_->config().vocab_size, hidden_);
  const auto allocate = [this](int64_t bytes, absl::string_view what) {
    return device_.Allocate(static_cast<size_t>(bytes), what);
  };
  ASSIGN_OR_RETURN(chosen_, allocate(memory.chosen, "step"));
  ASSIGN_OR_RETURN(moves_, allocate(memory.moves, "step"));
  ASSIGN_OR_RETURN(sample_scratch_, allocate(memory.sample_scratch, "sampling"));
  ASSIGN_OR_RETURN(choices_, allocate(memory.choices, "controlled steps"));
  ASSIGN_OR_RETURN(top_edges_, allocate(memory.top_edges, "controlled steps"));
  ASSIGN_OR_RETURN(log_prob_scratch_, allocate(memory.log_prob_scratch, "controlled steps"));
  ASSIGN_OR_RETURN(top_scratch_, allocate(memory.top_scratch, "controlled steps"));
  ASSIGN_OR_RETURN(output_, allocate(memory.output, "step output"));
  ASSIGN_OR_RETURN(host_output_, device_.AllocateHost(output_.bytes(), "step output"));
  return absl::OkStatus();
}

absl::Status DeviceStepRunner::RecordAll() {
  if (device_.launch_by_launch()) {
    return absl::OkStatus();
  }
  const std::vector<StepKind> kinds = RecordedKinds(capacity_);
  return device_.Measure(
      [&] {
        for (const StepKind& kind : kinds) {
          RETURN_IF_ERROR(Recorded(kind).status());
        }
        return absl::OkStatus();
      },
      absl::StrCat(kinds.size(), " recorded steps"));
}

absl::StatusOr<RecordedWork*> DeviceStepRunner::Recorded(const StepKind& kind) {
  std::unique_ptr<RecordedWork>& work = recorded_[kind];
  if (work == nullptr) {
    // Once with nothing but padding, which changes nothing: a fault shows here, by the name of its kernel,
    // and what the driver loads at first use is there.
    StepBatch nothing;
    nothing.Reserve(1, 1, 1);
    input_.Pack(kind.size, nothing, {});
    if (kind.controlled) {
      controls_.Pack(kind.size, {}, {}, nothing);
    }
    RETURN_IF_ERROR(InStep(Enqueue(kind), kind.size));
    RETURN_IF_ERROR(InStep(device_.Synchronize(), kind.size));
    ASSIGN_OR_RETURN(work, device_.Record([&] { return Enqueue(kind); },
                                          absl::StrCat(kind.controlled ? "controlled " : "",
                                                       "verify step of ", kind.size.rows, " rows")));
  }
  return work.get();
}

absl::Status DeviceStepRunner::Enqueue(const StepKind& kind) {
  const StepSize& size = kind.size;
  RETURN_IF_ERROR(input_.EnqueueCopy(size));
  if (kind.controlled) {
    RETURN_IF_ERROR(controls_.EnqueueCopy(size));
  }
  const StepArrays in = input_.DeviceArrays(size);
  ASSIGN_OR_RETURN(const ForwardResult forward, model_->Forward(input_.View(size), cache_->planes()));
  StepOutput out;
  const auto copied = static_cast<size_t>(PlaceStepOutput(kind, hidden_, output_.As<std::byte>(), out));
  if (size.logits_rows > 0) {
    RETURN_IF_ERROR(device_.Mark("choosing tokens"));
    RETURN_IF_ERROR(kind.controlled
                        ? EnqueueControlled(size, in, forward.logits, out)
                        : EnqueueSample(size, in, forward.logits, {out.log_prob, size.logits_rows}, out));
    RETURN_IF_ERROR(EnqueueAccept(size, in, out));
  }
  RETURN_IF_ERROR(device_.Mark("committing"));
  auto* const from = moves_.As<int32_t>();
  auto* const to = from + capacity_.max_rows;
  auto* const feature_slot = to + capacity_.max_rows;
  RETURN_IF_ERROR(kernels_.accepted_moves({.tree_begin = {in.tree_begin, size.trees + 1},
                                           .path = {out.path, size.rows},
                                           .path_length = {out.path_length, size.trees},
                                           .write_slot = {in.write_slot, size.rows},
                                           .from = {from, size.rows},
                                           .to = {to, size.rows},
                                           .feature_slot = {feature_slot, size.rows}},
                                          device_.stream()));
  RETURN_IF_ERROR(
      cache_->Compact(kernels_, {from, size.logits_rows}, {to, size.logits_rows}, device_.stream()));
  if (projection_ != nullptr) {
    RETURN_IF_ERROR(projection_->StoreAll(kernels_, forward.taps, {feature_slot, size.rows},
                                          {out.features, size.rows, hidden_, hidden_}, cache_->planes(),
                                          device_.stream()));
  }
  return size.logits_rows == 0 ? absl::OkStatus() : device_.Copy(host_output_.data(), output_.data(), copied);
}

absl::Status DeviceStepRunner::EnqueueSample(const StepSize& size, const StepArrays& in,
                                             View2<const float> logits, View1<float> log_prob,
                                             const StepOutput& out) {
  const int64_t rows = size.logits_rows;
  return kernels_.sample_target(
      {.logits = logits,
       .position = {in.noise_position, rows},
       .params_index = {in.params_index, rows},
       .params = {in.params, size.sequences},
       .chosen = {chosen_.As<TokenId>(), rows},
       .log_prob = log_prob,
       .scratch = {sample_scratch_.As<std::byte>(), static_cast<int64_t>(sample_scratch_.bytes())},
       .error = {out.sample_error, rows}},
      device_.stream());
}

// Chooses from other logits than the raw ones; what is told is of the raw ones.
absl::Status DeviceStepRunner::EnqueueControlled(const StepSize& size, const StepArrays& in,
                                                 View2<const float> raw, const StepOutput& out) {
  const int64_t rows = size.logits_rows;
  const ControlArrays controls = controls_.DeviceArrays(size);
  const ControlCapacity& capacity = controls_.capacity();
  const View2<float> choices = Choices(rows);
  RETURN_IF_ERROR(kernels_.logit_controls(
      {.raw = raw,
       .row = {controls.row, rows},
       .sequence = {controls.sequence, size.trees},
       .entry = {controls.entry, capacity.entries},
       .mask = {controls.mask, capacity.masks, capacity.mask_words, capacity.mask_words},
       .choice = choices},
      device_.stream()));
  RETURN_IF_ERROR(
      EnqueueSample(size, in, {choices.data, rows, choices.columns, choices.row_stride}, {}, out));
  RETURN_IF_ERROR(kernels_.top_k_log_prob(
      {.logits = raw,
       .params = {controls.top, rows},
       .token = {out.top, rows, kMaxTopLogProbs, kMaxTopLogProbs},
       .log_prob = {top_edges_.As<float>(), rows, kMaxTopLogProbs, kMaxTopLogProbs},
       .scratch = {top_scratch_.As<std::byte>(), static_cast<int64_t>(top_scratch_.bytes())}},
      device_.stream()));
  return kernels_.token_log_prob(
      {.logits = raw,
       .chosen = {chosen_.As<TokenId>(), rows},
       .forced = {controls.forced, rows},
       .top = {out.top, rows, kMaxTopLogProbs, kMaxTopLogProbs},
       .top_count = {controls.top_count, rows},
       .log_prob = {out.log_prob, rows, kLogProbColumns, kLogProbColumns},
       .scratch = {log_prob_scratch_.As<std::byte>(), static_cast<int64_t>(log_prob_scratch_.bytes())}},
      device_.stream());
}

View2<float> DeviceStepRunner::Choices(int64_t rows) const {
  const int64_t vocabulary = controls_.capacity().vocabulary;
  return {choices_.As<float>(), rows, vocabulary, vocabulary};
}

absl::Status DeviceStepRunner::EnqueueAccept(const StepSize& size, const StepArrays& in,
                                             const StepOutput& out) {
  const int64_t rows = size.logits_rows;
  return kernels_.tree_accept({.tree_begin = {in.tree_begin, size.trees + 1},
                               .token = {in.token, rows},
                               .parent = {in.parent, rows},
                               .chosen = {chosen_.As<TokenId>(), rows},
                               .path = {out.path, rows},
                               .path_length = {out.path_length, size.trees},
                               .bonus = {out.bonus, size.trees},
                               .error = {out.accept_error, size.trees}},
                              device_.stream());
}

absl::Status DeviceStepRunner::Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                                   absl::FunctionRef<void()> meanwhile) {
  FillStep(trees, chunks, batch_);
  const StepKind kind{sizes_.For(ContentsOf(batch_)), IsControlled(trees, chunks)};
  const StepSize& size = kind.size;
  RecordedWork* work = nullptr;
  if (!device_.launch_by_launch()) {
    ASSIGN_OR_RETURN(work, Recorded(kind));
  }
  sampling_.clear();
  for (const StepTree& tree : trees) {
    sampling_.push_back(tree.sampling);
  }
  input_.Pack(size, batch_, sampling_);
  if (kind.controlled) {
    controls_.Pack(size, trees, chunks, batch_);
    RETURN_IF_ERROR(controls_.EnqueueLists());
  }
  const bool shadowed = BeginShadow(trees, chunks);
  ForwardResult forward;  // of the step before it is recorded; the recorded one leaves its result there too
  if (shadowed) {
    RETURN_IF_ERROR(input_.EnqueueCopy(size));
    ASSIGN_OR_RETURN(forward, shadow_->Forward(*model_, input_.View(size)));
  }
  RETURN_IF_ERROR(InStep(work == nullptr ? Enqueue(kind) : work->Start(), size));
  meanwhile();
  RETURN_IF_ERROR(InStep(device_.Synchronize(), size));
  RETURN_IF_ERROR(ReadOutcomes(kind, trees, chunks));
  if (!shadowed) {
    return absl::OkStatus();
  }
  const View2<float> choices = Choices(forward.logits.rows);
  return shadow_->AfterStep(
      forward,
      kind.controlled ? View2<const float>{choices.data, choices.rows, choices.columns, choices.row_stride}
                      : forward.logits,
      chosen_.As<TokenId>(), row_log_prob_.data(), *this);
}

absl::Status DeviceStepRunner::ReadOutcomes(const StepKind& kind, std::span<const StepTree> trees,
                                            std::span<const StepChunk> chunks) {
  PlaceStepOutput(kind, hidden_, host_output_.As<std::byte>(), result_);
  const int64_t columns = kind.controlled ? kLogProbColumns : 1;
  for (size_t row = 0; row < batch_.logits_row.size(); ++row) {
    row_log_prob_[row] = result_.log_prob[static_cast<int64_t>(row) * columns];
  }
  for (int i = 0; i < static_cast<int>(trees.size()); ++i) {
    RETURN_IF_ERROR(ReadTree(trees[i], i));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunk_outcomes_[i] = ChunkOutcome{};
    if (const size_t scored = chunks[i].next.size(); scored > 0) {
      const int sequence = static_cast<int>(trees.size() + i);
      chunk_outcomes_[i].status = CheckFinite(sequence);
      chunk_outcomes_[i].log_probs =
          std::span<const float>(row_log_prob_).subspan(batch_.first_row[sequence], scored);
    }
  }
  return absl::OkStatus();
}

// Of one whose rows have logits.
absl::Status DeviceStepRunner::CheckFinite(int sequence) const {
  const int32_t* errors = result_.sample_error + batch_.first_row[sequence];
  const int32_t* end = result_.sample_error + batch_.first_row[sequence + 1];
  const int32_t* broken = std::find_if(errors, end, [](int32_t error) { return error != 0; });
  return broken == end ? absl::OkStatus()
                       : absl::InternalError(absl::StrCat("logits of node ", broken - errors,
                                                          " are not finite, expected finite numbers"));
}

absl::Status DeviceStepRunner::ReadTree(const StepTree& tree, int index) {
  TreeOutcome& outcome = outcomes_[index] = TreeOutcome{};
  outcome.status = CheckFinite(index);
  if (!outcome.status.ok()) {
    return absl::OkStatus();
  }
  const int begin = batch_.first_row[index], nodes = batch_.first_row[index + 1] - begin;
  const int length = result_.path_length[index];
  if (result_.accept_error[index] != 0 || length < 1 || length > nodes) {
    return absl::InternalError(absl::StrCat("tree_accept.path_length[", index, "]=", length,
                                            " error=", result_.accept_error[index],
                                            ", expected a path inside a checked tree"));
  }
  outcome.path = {result_.path + begin, static_cast<size_t>(length)};
  const int64_t k = tree.controls == nullptr
                        ? 0
                        : std::min<int64_t>(tree.controls->top_log_probs, controls_.capacity().vocabulary);
  TokenLogProb* const lists = path_top_.data() + int64_t{begin} * kMaxTopLogProbs;
  for (int j = 0; j < length; ++j) {
    const int64_t row = begin + outcome.path[j];
    path_log_prob_[begin + j] = row_log_prob_[row];
    outcome.compacted |= outcome.path[j] != j;
    if (k > 0) {
      WriteTopList(result_.top + row * kMaxTopLogProbs, result_.log_prob + row * kLogProbColumns + 1,
                   static_cast<int32_t>(k), lists + j * k);
    }
  }
  outcome.log_probs = std::span<const float>(path_log_prob_).subspan(begin, length);
  outcome.top_log_probs = {lists, static_cast<size_t>(length * k)};
  outcome.bonus = result_.bonus[index];
  return absl::OkStatus();
}

void DeviceStepRunner::CopyPathFeatures(int tree, int32_t rows, BFloat16* out) const {
  const BFloat16* of_tree = result_.features + batch_.first_row[tree] * hidden_;
  for (int32_t row = 0; row < rows; ++row) {
    std::copy_n(of_tree + outcomes_[tree].path[row] * hidden_, hidden_, out + row * hidden_);
  }
}

absl::Status DeviceStepRunner::ReadFeatures(std::span<const int32_t> page_table, int32_t position,
                                            int32_t rows, BFloat16* out) {
  Check(projection_ != nullptr, "features need a projection");
  int32_t read = 0;
  while (read < rows) {
    const int32_t slot = SlotOf(page_table, position + read);
    int32_t run = 1;
    while (read + run < rows && SlotOf(page_table, position + read + run) == slot + run) {
      ++run;
    }
    RETURN_IF_ERROR(device_.Copy(out + read * hidden_, cache_->planes().features() + slot * hidden_,
                                 static_cast<size_t>(run * hidden_) * sizeof(BFloat16)));
    read += run;
  }
  return device_.Synchronize();
}

}  // namespace arborist::verifier
