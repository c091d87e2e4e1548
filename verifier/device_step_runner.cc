#include "verifier/device_step_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "verifier/batch_builder.h"
#include "verifier/shadow_verifier.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kAlignment = 16;

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
  std::unique_ptr<DeviceStepRunner> runner(
      new DeviceStepRunner(capacity, model, cache, projection, kernels, device, std::move(input)));
  RETURN_IF_ERROR(runner->Allocate());
  return runner;
}

DeviceStepRunner::DeviceStepRunner(const StepCapacity& capacity, Model* model, KvCache* cache,
                                   FeatureProjection* projection, const kernels::KernelSet& kernels,
                                   Device& device, StepInput input)
    : capacity_(capacity),
      sizes_(capacity),
      model_(model),
      cache_(cache),
      projection_(projection),
      kernels_(kernels),
      device_(device),
      hidden_(projection == nullptr ? 0 : projection->hidden()),
      input_(std::move(input)),
      chunk_outcomes_(static_cast<size_t>(capacity.max_sequences)),
      outcomes_(static_cast<size_t>(capacity.max_sequences)),
      path_log_prob_(static_cast<size_t>(capacity.max_logits_rows)) {
  batch_.Reserve(capacity.max_rows, capacity.max_sequences, capacity.max_pages_per_sequence);
  sampling_.reserve(static_cast<size_t>(capacity.max_sequences));
}

absl::Status DeviceStepRunner::Allocate() {
  const auto rows = static_cast<size_t>(capacity_.max_rows);
  const StepSize largest{.rows = capacity_.max_rows,
                         .logits_rows = capacity_.max_logits_rows,
                         .sequences = capacity_.max_sequences,
                         .trees = capacity_.max_sequences,
                         .pages_per_sequence = capacity_.max_pages_per_sequence};
  ASSIGN_OR_RETURN(chosen_, device_.Allocate(rows * sizeof(TokenId), "step"));
  ASSIGN_OR_RETURN(moves_, device_.Allocate(3 * rows * sizeof(int32_t), "step"));
  ASSIGN_OR_RETURN(sample_scratch_,
                   device_.Allocate(kernels::SampleTargetCudaScratchBytes(capacity_.max_logits_rows,
                                                                          model_->config().vocab_size),
                                    "sampling"));
  Output unused;
  const int64_t feature_bytes = capacity_.max_rows * hidden_ * static_cast<int64_t>(sizeof(BFloat16));
  const auto bytes = static_cast<size_t>(Place(largest, nullptr, unused) + feature_bytes);
  ASSIGN_OR_RETURN(output_, device_.Allocate(bytes, "step output"));
  ASSIGN_OR_RETURN(host_output_, device_.AllocateHost(bytes, "step output"));
  return absl::OkStatus();
}

int64_t DeviceStepRunner::Place(const StepSize& size, std::byte* base, Output& output) const {
  int64_t end = 0;
  const auto take = [&]<typename T>(T*& array, int64_t elements) {
    array = reinterpret_cast<T*>(base + end);
    end = RoundUp(end + elements * static_cast<int64_t>(sizeof(T)), kAlignment);
  };
  take(output.path, size.rows);
  take(output.path_length, size.trees);
  take(output.bonus, size.trees);
  take(output.accept_error, size.trees);
  take(output.log_prob, size.logits_rows);
  take(output.sample_error, size.logits_rows);
  take(output.features, size.logits_rows * hidden_);
  return end;
}

absl::Status DeviceStepRunner::RecordAll() {
  if (device_.launch_by_launch()) {
    return absl::OkStatus();
  }
  const std::vector<StepSize> sizes = sizes_.All();
  return device_.Measure(
      [&] {
        for (const StepSize& size : sizes) {
          RETURN_IF_ERROR(Recorded(size).status());
        }
        return absl::OkStatus();
      },
      absl::StrCat(sizes.size(), " recorded steps"));
}

absl::StatusOr<RecordedWork*> DeviceStepRunner::Recorded(const StepSize& size) {
  std::unique_ptr<RecordedWork>& work = recorded_[size];
  if (work == nullptr) {
    // Once with nothing but padding, which changes nothing: a fault shows here, by the name of its kernel,
    // and what the driver loads at first use is there.
    StepBatch nothing;
    nothing.Reserve(1, 1, 1);
    input_.Pack(size, nothing, {});
    RETURN_IF_ERROR(InStep(Enqueue(size), size));
    RETURN_IF_ERROR(InStep(device_.Synchronize(), size));
    ASSIGN_OR_RETURN(work, device_.Record([&] { return Enqueue(size); },
                                          absl::StrCat("verify step of ", size.rows, " rows")));
  }
  return work.get();
}

absl::Status DeviceStepRunner::Enqueue(const StepSize& size) {
  RETURN_IF_ERROR(input_.EnqueueCopy(size));
  const StepArrays in = input_.DeviceArrays(size);
  ASSIGN_OR_RETURN(const ForwardResult forward, model_->Forward(input_.View(size), cache_->planes()));
  Output out;
  const auto copied = static_cast<size_t>(Place(size, output_.As<std::byte>(), out));
  if (size.logits_rows > 0) {
    RETURN_IF_ERROR(device_.Mark("choosing tokens"));
    RETURN_IF_ERROR(EnqueueAccept(size, in, forward, out));
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

absl::Status DeviceStepRunner::EnqueueAccept(const StepSize& size, const StepArrays& in,
                                             const ForwardResult& forward, const Output& out) {
  const int64_t rows = size.logits_rows;
  RETURN_IF_ERROR(kernels_.sample_target(
      {.logits = forward.logits,
       .position = {in.noise_position, rows},
       .params_index = {in.params_index, rows},
       .params = {in.params, size.sequences},
       .chosen = {chosen_.As<TokenId>(), rows},
       .log_prob = {out.log_prob, rows},
       .scratch = {sample_scratch_.As<std::byte>(), static_cast<int64_t>(sample_scratch_.bytes())},
       .error = {out.sample_error, rows}},
      device_.stream()));
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
  const StepSize size = sizes_.For(ContentsOf(batch_));
  RecordedWork* work = nullptr;
  if (!device_.launch_by_launch()) {
    ASSIGN_OR_RETURN(work, Recorded(size));
  }
  sampling_.clear();
  for (const StepTree& tree : trees) {
    sampling_.push_back(tree.sampling);
  }
  input_.Pack(size, batch_, sampling_);
  const bool shadowed = BeginShadow(trees, chunks);
  ForwardResult forward;  // of the step before it is recorded; the recorded one leaves its result there too
  if (shadowed) {
    RETURN_IF_ERROR(input_.EnqueueCopy(size));
    ASSIGN_OR_RETURN(forward, shadow_->Forward(*model_, input_.View(size)));
  }
  RETURN_IF_ERROR(InStep(work == nullptr ? Enqueue(size) : work->Start(), size));
  meanwhile();
  RETURN_IF_ERROR(InStep(device_.Synchronize(), size));
  RETURN_IF_ERROR(ReadOutcomes(size, trees));
  return shadowed ? shadow_->AfterStep(forward, chosen_.As<TokenId>(), result_.log_prob, *this)
                  : absl::OkStatus();
}

absl::Status DeviceStepRunner::ReadOutcomes(const StepSize& size, std::span<const StepTree> trees) {
  Place(size, host_output_.As<std::byte>(), result_);
  for (int i = 0; i < static_cast<int>(trees.size()); ++i) {
    TreeOutcome& outcome = outcomes_[i] = TreeOutcome{};
    const int begin = batch_.first_row[i], nodes = batch_.first_row[i + 1] - begin;
    const int32_t* errors = result_.sample_error + begin;
    if (const int32_t* broken = std::find_if(errors, errors + nodes, [](int32_t e) { return e != 0; });
        broken != errors + nodes) {
      outcome.status = absl::InternalError(
          absl::StrCat("logits of node ", broken - errors, " are not finite, expected finite numbers"));
      continue;
    }
    const int length = result_.path_length[i];
    if (result_.accept_error[i] != 0 || length < 1 || length > nodes) {
      return absl::InternalError(absl::StrCat("tree_accept.path_length[", i, "]=", length,
                                              " error=", result_.accept_error[i],
                                              ", expected a path inside a checked tree"));
    }
    outcome.path = {result_.path + begin, static_cast<size_t>(length)};
    for (int j = 0; j < length; ++j) {
      path_log_prob_[begin + j] = result_.log_prob[begin + outcome.path[j]];
      outcome.compacted |= outcome.path[j] != j;
    }
    outcome.log_probs = std::span<const float>(path_log_prob_).subspan(begin, length);
    outcome.bonus = result_.bonus[i];
  }
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
