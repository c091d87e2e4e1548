#include "verifier/host_choice.h"

#include "common/base/status_macros.h"
#include "verifier/sample_scratch.h"
#include "verifier/top_list.h"

namespace arborist::verifier {

HostChoice::HostChoice(const StepCapacity& capacity, int64_t vocabulary, const kernels::KernelSet& kernels,
                       StreamView stream)
    : kernels_(kernels), stream_(stream), capacity_(capacity, vocabulary), lists_(capacity_) {
  const auto rows = static_cast<size_t>(capacity.max_logits_rows);
  row_.resize(rows);
  sequence_.resize(static_cast<size_t>(capacity.max_sequences));
  forced_.resize(rows);
  top_params_.resize(rows);
  top_count_.resize(rows);
  entry_.resize(static_cast<size_t>(capacity_.entries));
  mask_.resize(static_cast<size_t>(capacity_.masks * capacity_.mask_words));
  top_.resize(rows * kMaxTopLogProbs);
  top_log_prob_.resize(rows * kMaxTopLogProbs);
  log_prob_.resize(rows * kLogProbColumns);
  choice_.resize(kernels::TopKLogProbScratchBytes(capacity.max_logits_rows, vocabulary) + kScratchAlignment);
}

absl::StatusOr<View2<const float>> HostChoice::Apply(std::span<const StepTree> trees,
                                                     std::span<const StepChunk> chunks,
                                                     const StepBatch& batch, View2<const float> raw) {
  const ControlSizes used = lists_.Fill(trees, chunks, batch,
                                        {.row = row_.data(),
                                         .sequence = sequence_.data(),
                                         .forced = forced_.data(),
                                         .top = top_params_.data(),
                                         .top_count = top_count_.data(),
                                         .entry = entry_.data(),
                                         .mask = mask_.data()});
  if (!FindTop(raw, 0, raw.rows).ok()) {
    // A row is broken, as its sampling will say: it has no list, the others do.
    for (int64_t row = 0; row < raw.rows; ++row) {
      top_count_[row] = FindTop(raw, row, row + 1).ok() ? top_count_[row] : 0;
    }
  }
  const View2<float> choice = {reinterpret_cast<float*>(Aligned(choice_).data), raw.rows, raw.columns,
                               raw.columns};
  RETURN_IF_ERROR(
      kernels_.logit_controls({.raw = raw,
                               .row = {row_.data(), raw.rows},
                               .sequence = {sequence_.data(), static_cast<int64_t>(trees.size())},
                               .entry = {entry_.data(), used.entries},
                               .mask = {mask_.data(), used.masks, capacity_.mask_words, capacity_.mask_words},
                               .choice = choice},
                              stream_));
  return View2<const float>{choice.data, choice.rows, choice.columns, choice.row_stride};
}

absl::Status HostChoice::FindTop(View2<const float> raw, int64_t begin, int64_t end) {
  const int64_t rows = end - begin;
  View2<const float> logits = raw;
  logits.data = raw.row(begin);
  logits.rows = rows;
  return kernels_.top_k_log_prob(
      {.logits = logits,
       .params = {top_params_.data() + begin, rows},
       .token = {top_.data() + begin * kMaxTopLogProbs, rows, kMaxTopLogProbs, kMaxTopLogProbs},
       .log_prob = {top_log_prob_.data() + begin * kMaxTopLogProbs, rows, kMaxTopLogProbs, kMaxTopLogProbs},
       .scratch = Aligned(choice_)},
      stream_);
}

absl::Status HostChoice::TellLogProbs(View2<const float> raw, const TokenId* chosen, float* log_prob) {
  RETURN_IF_ERROR(
      kernels_.token_log_prob({.logits = raw,
                               .chosen = {chosen, raw.rows},
                               .forced = {forced_.data(), raw.rows},
                               .top = {top_.data(), raw.rows, kMaxTopLogProbs, kMaxTopLogProbs},
                               .top_count = {top_count_.data(), raw.rows},
                               .log_prob = {log_prob_.data(), raw.rows, kLogProbColumns, kLogProbColumns},
                               .scratch = {}},
                              stream_));
  for (int64_t row = 0; row < raw.rows; ++row) {
    log_prob[row] = log_prob_[static_cast<size_t>(row * kLogProbColumns)];
  }
  return absl::OkStatus();
}

void HostChoice::CopyTopList(int64_t row, int32_t k, TokenLogProb* out) const {
  WriteTopList(top_.data() + row * kMaxTopLogProbs, log_prob_.data() + row * kLogProbColumns + 1, k, out);
}

}  // namespace arborist::verifier
