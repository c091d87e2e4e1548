#include "verifier/host_step_runner.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "verifier/batch_builder.h"
#include "verifier/sample_scratch.h"
#include "verifier/shadow_verifier.h"

namespace arborist::verifier {
HostStepRunner::HostStepRunner(const StepCapacity& capacity, Model* model, KvCache* cache,
                               FeatureProjection* projection, const kernels::KernelSet& kernels,
                               StreamView stream)
    : capacity_(capacity),
      model_(model),
      cache_(cache),
      projection_(projection),
      kernels_(kernels),
      stream_(stream),
      choice_(capacity, model->config().vocab_size, kernels, stream) {
  const auto logits_rows = static_cast<size_t>(capacity.max_logits_rows);
  const auto sequences = static_cast<size_t>(capacity.max_sequences);
  batch_.Reserve(capacity.max_rows, capacity.max_sequences, capacity.max_pages_per_sequence);
  outcomes_.resize(sequences);
  chunk_outcomes_.resize(sequences);
  params_.resize(sequences);
  path_length_.resize(sequences);
  bonus_.resize(sequences);
  accept_error_.resize(sequences);
  noise_position_.resize(logits_rows);
  chosen_.resize(logits_rows);
  log_prob_.resize(logits_rows);
  path_log_prob_.resize(logits_rows);
  path_top_.resize(logits_rows * kMaxTopLogProbs);
  path_.resize(logits_rows);
  from_.reserve(static_cast<size_t>(capacity.max_rows));
  to_.reserve(static_cast<size_t>(capacity.max_rows));
  const int threads = stream.threads == nullptr ? 1 : stream.threads->threads();
  sample_scratch_.resize(kernels::SampleTargetScratchBytes(model->config().vocab_size, threads) +
                         kScratchAlignment);
}

absl::Status HostStepRunner::Run(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                                 absl::FunctionRef<void()> meanwhile) {
  meanwhile();
  FillStep(trees, chunks, batch_);
  Check(static_cast<int>(batch_.logits_row.size()) <= capacity_.max_logits_rows,
        "the scheduler counts rows with logits");
  const bool shadowed = BeginShadow(trees, chunks);
  ASSIGN_OR_RETURN(const ForwardResult forward, shadowed ? shadow_->Forward(*model_, ViewOf(batch_))
                                                         : model_->Forward(ViewOf(batch_), cache_->planes()));
  RETURN_IF_ERROR(Choose(forward.logits, trees, chunks));
  RETURN_IF_ERROR(Accept(trees));
  RETURN_IF_ERROR(Compact(trees));
  RETURN_IF_ERROR(StoreFeatures(forward, trees, chunks));
  return shadowed ? shadow_->AfterStep(forward, choices_, chosen_.data(), log_prob_.data(), *this)
                  : absl::OkStatus();
}

absl::Status HostStepRunner::Choose(View2<const float> raw, std::span<const StepTree> trees,
                                    std::span<const StepChunk> chunks) {
  controlled_ = IsControlled(trees, chunks);
  choices_ = raw;
  if (controlled_) {
    ASSIGN_OR_RETURN(choices_, choice_.Apply(trees, chunks, batch_, raw));
  }
  Sample(choices_, trees, chunks);
  if (controlled_) {
    RETURN_IF_ERROR(choice_.TellLogProbs(raw, chosen_.data(), log_prob_.data()));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (const size_t scored = chunks[i].next.size(); scored > 0) {
      chunk_outcomes_[i].log_probs =
          std::span<const float>(log_prob_).subspan(batch_.first_row[trees.size() + i], scored);
    }
  }
  return absl::OkStatus();
}

void HostStepRunner::Sample(View2<const float> logits, std::span<const StepTree> trees,
                            std::span<const StepChunk> chunks) {
  const size_t sequences = trees.size() + chunks.size();
  for (size_t i = 0; i < sequences; ++i) {
    // What a scored chunk chooses is nobody's.
    params_[i] = i < trees.size() ? trees[i].sampling : kernels::SamplingParams{};
  }
  std::fill_n(outcomes_.begin(), trees.size(), TreeOutcome{});
  std::fill_n(chunk_outcomes_.begin(), chunks.size(), ChunkOutcome{});
  const int rows = static_cast<int>(batch_.logits_row.size());
  for (int row = 0; row < rows; ++row) {
    noise_position_[row] = batch_.position[row] + 1;
  }
  if (rows == 0 || SampleRows(logits, 0, rows).ok()) {
    return;
  }
  // One sequence's logits are broken: find out whose, so that its neighbours go on.
  for (size_t i = 0; i < sequences; ++i) {
    if (i < trees.size()) {
      outcomes_[i].status = SampleSequence(logits, i);
    } else if (!chunks[i - trees.size()].next.empty()) {
      chunk_outcomes_[i - trees.size()].status = SampleSequence(logits, i);
    }
  }
}

absl::Status HostStepRunner::SampleSequence(View2<const float> logits, size_t sequence) {
  const int begin = batch_.first_row[sequence], end = batch_.first_row[sequence + 1];
  const absl::Status status = SampleRows(logits, begin, end);
  if (!status.ok()) {
    std::fill(chosen_.begin() + begin, chosen_.begin() + end, TokenId{0});
  }
  return status;
}

// Of a controlled step the log-probabilities come later: they are of the raw logits.
absl::Status HostStepRunner::SampleRows(View2<const float> logits, int begin, int end) {
  const int64_t rows = end - begin;
  logits.data = logits.row(begin);
  logits.rows = rows;
  return kernels_.sample_target({.logits = logits,
                                 .position = {noise_position_.data() + begin, rows},
                                 .params_index = {batch_.sequence.data() + begin, rows},
                                 .params = {params_.data(), static_cast<int64_t>(batch_.sequences)},
                                 .chosen = {chosen_.data() + begin, rows},
                                 .log_prob = {log_prob_.data() + begin, controlled_ ? 0 : rows},
                                 .scratch = Aligned(sample_scratch_)},
                                stream_);
}

absl::Status HostStepRunner::Accept(std::span<const StepTree> trees) {
  const auto tree_count = static_cast<int64_t>(trees.size());
  const auto rows = static_cast<int64_t>(batch_.logits_row.size());
  if (tree_count == 0) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(kernels_.tree_accept({.tree_begin = {batch_.first_row.data(), tree_count + 1},
                                        .token = {batch_.token.data(), rows},
                                        .parent = {batch_.parent.data(), rows},
                                        .chosen = {chosen_.data(), rows},
                                        .path = {path_.data(), rows},
                                        .path_length = {path_length_.data(), tree_count},
                                        .bonus = {bonus_.data(), tree_count},
                                        .error = {accept_error_.data(), tree_count}},
                                       stream_));
  for (int i = 0; i < static_cast<int>(tree_count); ++i) {
    const int begin = batch_.first_row[i];
    const int length = path_length_[i];
    if (accept_error_[i] != 0 || length < 1 || length > batch_.first_row[i + 1] - begin) {
      return absl::InternalError(absl::StrCat("tree_accept.path_length[", i, "]=", length, " error=",
                                              accept_error_[i], ", expected a path inside a checked tree"));
    }
    for (int j = 0; j < length; ++j) {
      path_log_prob_[begin + j] = log_prob_[begin + path_[begin + j]];
    }
    outcomes_[i].path = std::span(path_).subspan(begin, length);
    outcomes_[i].log_probs = std::span<const float>(path_log_prob_).subspan(begin, length);
    outcomes_[i].bonus = bonus_[i];
    if (trees[i].controls != nullptr) {
      TellTopLists(i, std::min(trees[i].controls->top_log_probs, static_cast<int32_t>(choices_.columns)));
    }
  }
  return absl::OkStatus();
}

void HostStepRunner::TellTopLists(int tree, int32_t k) {
  const int begin = batch_.first_row[tree];
  const std::span<TokenLogProb> lists = std::span(path_top_).subspan(
      static_cast<size_t>(begin) * kMaxTopLogProbs, outcomes_[tree].path.size() * static_cast<size_t>(k));
  for (size_t j = 0; j < outcomes_[tree].path.size(); ++j) {
    choice_.CopyTopList(begin + outcomes_[tree].path[j], k, lists.data() + j * static_cast<size_t>(k));
  }
  outcomes_[tree].top_log_probs = lists;
}

// Brings the accepted rows to their positions. All trees at once: slots of different sequences are distinct.
absl::Status HostStepRunner::Compact(std::span<const StepTree> trees) {
  from_.clear();
  to_.clear();
  for (int i = 0; i < static_cast<int>(trees.size()); ++i) {
    const auto path = outcomes_[i].path;
    for (int j = 0; j < static_cast<int>(path.size()); ++j) {
      if (path[j] != j) {
        from_.push_back(SlotOf(trees[i].page_table, trees[i].root_position + path[j]));
        to_.push_back(SlotOf(trees[i].page_table, trees[i].root_position + j));
        outcomes_[i].compacted = true;
      }
    }
  }
  return cache_->Compact(kernels_, {from_.data(), static_cast<int64_t>(from_.size())},
                         {to_.data(), static_cast<int64_t>(to_.size())}, stream_);
}

absl::Status HostStepRunner::StoreFeatures(const ForwardResult& forward, std::span<const StepTree> trees,
                                           std::span<const StepChunk> chunks) {
  if (projection_ == nullptr) {
    return absl::OkStatus();
  }
  from_.clear();
  to_.clear();
  for (int i = 0; i < static_cast<int>(trees.size()); ++i) {
    const auto path = outcomes_[i].path;
    for (int j = 0; j < static_cast<int>(path.size()); ++j) {
      from_.push_back(batch_.first_row[i] + path[j]);
      to_.push_back(SlotOf(trees[i].page_table, trees[i].root_position + j));
    }
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    const int first = batch_.first_row[trees.size() + i];
    for (int j = 0; j < static_cast<int>(chunks[i].tokens.size()); ++j) {
      from_.push_back(first + j);
      to_.push_back(SlotOf(chunks[i].page_table, chunks[i].first_position + j));
    }
  }
  return projection_->Store(kernels_, forward.taps, from_, to_, cache_->planes(), stream_);
}

// A tree's rows were written to the slots of root_position + i, in this order.
void HostStepRunner::CopyPathFeatures(int tree, int32_t rows, BFloat16* out) const {
  const int64_t width = cache_->planes().feature_row();
  const int32_t* slot = batch_.write_slot.data() + batch_.first_row[tree];
  for (int32_t row = 0; row < rows; ++row) {
    std::copy_n(cache_->planes().features() + slot[row] * width, width, out + row * width);
  }
}

absl::Status HostStepRunner::ReadFeatures(std::span<const int32_t> page_table, int32_t position, int32_t rows,
                                          BFloat16* out) {
  const int64_t width = cache_->planes().feature_row();
  const BFloat16* plane = cache_->planes().features();
  for (int32_t row = 0; row < rows; ++row) {
    std::copy_n(plane + SlotOf(page_table, position + row) * width, width, out + row * width);
  }
  return absl::OkStatus();
}

}  // namespace arborist::verifier
