#include "verifier/shadow_verifier.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "verifier/shadow_compare.h"

namespace arborist::verifier {
namespace {

// Heads compared of each row: the oracle's time is theirs times the keys.
constexpr int64_t kHeads = 4;

// Neighbouring slots are copied together.
size_t RunLength(std::span<const int32_t> slots, size_t begin) {
  size_t end = begin + 1;
  while (end < slots.size() && slots[end] == slots[end - 1] + 1) {
    ++end;
  }
  return end - begin;
}

// `count` distinct ones of [0, limit), or all.
std::vector<int64_t> Draw(int64_t limit, int64_t count, std::mt19937_64& random) {
  std::vector<int64_t> all(static_cast<size_t>(limit));
  for (int64_t i = 0; i < limit; ++i) {
    all[i] = i;
  }
  std::shuffle(all.begin(), all.end(), random);
  all.resize(static_cast<size_t>(std::min(limit, count)));
  return all;
}

}  // namespace

ShadowVerifier::ShadowVerifier(const ShadowOptions& options, int layers, KvPlanes& planes, Device& device)
    : options_(options),
      layers_(layers),
      planes_(planes),
      device_(device),
      kernels_(options.kernels),
      random_(options.seed),
      worker_([this](const ShadowSample& sample) {
        for (const ShadowReport& report : CompareSample(sample, kernels_)) {
          if (options_.on_report) {
            options_.on_report(report);
          }
        }
      }) {
  if (kernels_.empty()) {
    kernels_.assign(kShadowKernels.begin(), kShadowKernels.end());
  }
  if (device.kind() == DeviceKind::kCpu) {
    std::erase(kernels_, ShadowKernel::kRecordedStep);
  }
  if (!options.exact) {
    std::erase(kernels_, ShadowKernel::kRecordedStep);
    std::erase(kernels_, ShadowKernel::kKvCompact);
  }
}

bool ShadowVerifier::Wants(ShadowKernel kernel) const {
  return std::find(kernels_.begin(), kernels_.end(), kernel) != kernels_.end();
}

bool ShadowVerifier::Begin(std::span<const StepTree> trees, std::span<const StepChunk> chunks) {
  if (std::uniform_real_distribution<double>(0, 1)(random_) >= options_.fraction) {
    return false;
  }
  if (options_.wait) {
    worker_.WaitUntilIdle();
  } else if (worker_.busy()) {
    if (options_.on_passed_over) {
      options_.on_passed_over();
    }
    return false;
  }
  trees_ = trees;
  sample_ = std::make_unique<ShadowSample>();
  sample_->step = ++steps_;
  sample_->limit = options_.relative_limit;
  layer_ = std::uniform_int_distribution<int>(0, layers_ - 1)(random_);
  const int trees_count = static_cast<int>(trees.size());
  focus_ = trees.empty() ? -1 : std::uniform_int_distribution<int>(0, trees_count - 1)(random_);
  sample_->rows = ChooseRows(trees, chunks, focus_, options_.rows, random_);
  eager_.clear();
  return true;
}

absl::StatusOr<ForwardResult> ShadowVerifier::Forward(Model& model, const StepBatchView& batch) {
  model.Observe(this);
  absl::StatusOr<ForwardResult> forward = model.Forward(batch, planes_);
  model.Observe(nullptr);
  if (!forward.ok()) {
    // The step ends here; what was seen until then may tell why.
    if (CopyCache().ok() && device_.Synchronize().ok()) {
      worker_.Start(std::move(sample_));
    }
    return forward;
  }
  RETURN_IF_ERROR(CopyCache());
  if (Wants(ShadowKernel::kRecordedStep)) {
    RETURN_IF_ERROR(CopyLogits(forward->logits, eager_));
  }
  RETURN_IF_ERROR(device_.Synchronize());
  return forward;
}

absl::Status ShadowVerifier::Attended(int layer, const kernels::TreeAttentionMlaArgs& args) {
  if (layer != layer_ || !Wants(ShadowKernel::kTreeAttentionMla)) {
    return absl::OkStatus();
  }
  const std::vector<int64_t> heads = Draw(args.query.heads, kHeads, random_);
  ShadowSample::Attention& to = sample_->attention.emplace();
  to.layer = layer;
  to.heads = static_cast<int64_t>(heads.size());
  to.latent = args.latent;
  to.rope = args.rope;
  to.scale = args.scale;
  to.cache_dtype = args.cache_dtype;
  const int64_t width = args.latent + args.rope,
                pairs = static_cast<int64_t>(sample_->rows.size()) * to.heads;
  to.query.resize(static_cast<size_t>(pairs * width));
  to.out.resize(static_cast<size_t>(pairs * args.latent));
  float *query = to.query.data(), *out = to.out.data();
  for (const ShadowRow& row : sample_->rows) {
    for (const int64_t head : heads) {
      RETURN_IF_ERROR(
          device_.Copy(query, args.query.at(row.row, head), static_cast<size_t>(width) * sizeof(float)));
      RETURN_IF_ERROR(
          device_.Copy(out, args.out.at(row.row, head), static_cast<size_t>(args.latent) * sizeof(float)));
      query += width;
      out += args.latent;
    }
  }
  return absl::OkStatus();
}

// Dense layers have no router: the first one from the chosen layer on that has.
absl::Status ShadowVerifier::Routed(int layer, const kernels::MoeRouteArgs& args) {
  if (layer < layer_ || sample_->route.has_value() || !Wants(ShadowKernel::kMoeRoute)) {
    return absl::OkStatus();
  }
  ShadowSample::Route& to = sample_->route.emplace();
  to.layer = layer;
  to.rule = args;
  to.experts = args.logits.columns;
  const size_t rows = sample_->rows.size(), chosen = static_cast<size_t>(args.top_k);
  const auto experts = static_cast<size_t>(to.experts);
  to.logits.resize(rows * experts);
  to.bias.resize(static_cast<size_t>(args.bias.size));
  to.expert.resize(rows * chosen);
  to.weight.resize(rows * chosen);
  if (!to.bias.empty()) {
    RETURN_IF_ERROR(device_.Copy(to.bias.data(), args.bias.data, to.bias.size() * sizeof(float)));
  }
  for (size_t i = 0; i < rows; ++i) {
    const int64_t row = sample_->rows[i].row;
    RETURN_IF_ERROR(
        device_.Copy(to.logits.data() + i * experts, args.logits.row(row), experts * sizeof(float)));
    RETURN_IF_ERROR(
        device_.Copy(to.expert.data() + i * chosen, args.expert.row(row), chosen * sizeof(int32_t)));
    RETURN_IF_ERROR(
        device_.Copy(to.weight.data() + i * chosen, args.weight.row(row), chosen * sizeof(float)));
  }
  return absl::OkStatus();
}

absl::Status ShadowVerifier::CopySlots(int layer, std::span<const int32_t> slots, std::byte* out) {
  const auto* plane = static_cast<const std::byte*>(planes_.latent(layer));
  const int64_t row_bytes = planes_.plane_row_bytes()[layer];
  for (size_t begin = 0; begin < slots.size();) {
    const size_t run = RunLength(slots, begin);
    const size_t bytes = run * static_cast<size_t>(row_bytes);
    RETURN_IF_ERROR(device_.Copy(out, plane + slots[begin] * row_bytes, bytes));
    out += bytes;
    begin += run;
  }
  return absl::OkStatus();
}

// The keys of the chosen rows, and the chosen tree's K/V as it was computed.
absl::Status ShadowVerifier::CopyCache() {
  const auto row_bytes = static_cast<size_t>(planes_.plane_row_bytes()[layer_]);
  if (sample_->attention.has_value()) {
    for (const ShadowRow& row : sample_->rows) {
      std::vector<std::byte>& keys = sample_->attention->cache.emplace_back(row.key_slot.size() * row_bytes);
      RETURN_IF_ERROR(CopySlots(layer_, row.key_slot, keys.data()));
    }
  }
  if (focus_ >= 0 && Wants(ShadowKernel::kKvCompact)) {
    ShadowSample::Moves& moves = sample_->moves.emplace();
    moves.layer = layer_;
    moves.row_bytes = static_cast<int64_t>(row_bytes);
    moves.slot = NodeSlots(trees_[focus_]);
    moves.before.resize(moves.slot.size() * row_bytes);
    RETURN_IF_ERROR(CopySlots(layer_, moves.slot, moves.before.data()));
  }
  return absl::OkStatus();
}

// Of the chosen rows that are a tree's. Trees come first in a step, so a row and its logits have one index.
absl::Status ShadowVerifier::CopyLogits(View2<const float> logits, std::vector<float>& out) {
  const auto vocabulary = static_cast<size_t>(logits.columns);
  const auto is_tree = [](const ShadowRow& row) { return row.tree >= 0; };
  out.resize(static_cast<size_t>(std::count_if(sample_->rows.begin(), sample_->rows.end(), is_tree)) *
             vocabulary);
  float* to = out.data();
  for (const ShadowRow& row : sample_->rows) {
    if (is_tree(row)) {
      RETURN_IF_ERROR(device_.Copy(to, logits.row(row.row), vocabulary * sizeof(float)));
      to += vocabulary;
    }
  }
  return absl::OkStatus();
}

absl::Status ShadowVerifier::AfterStep(const ForwardResult& forward, View2<const float> choices,
                                       const TokenId* chosen, const float* log_prob,
                                       const StepRunner& runner) {
  const auto tree_rows = static_cast<size_t>(FirstRowOf(trees_, static_cast<int>(trees_.size())));
  std::vector<TokenId> chosen_tokens(tree_rows);
  std::vector<float> log_probs(tree_rows);
  if (tree_rows > 0) {
    RETURN_IF_ERROR(device_.Copy(chosen_tokens.data(), chosen, tree_rows * sizeof(TokenId)));
    RETURN_IF_ERROR(device_.Copy(log_probs.data(), log_prob, tree_rows * sizeof(float)));
    RETURN_IF_ERROR(device_.Synchronize());
    RETURN_IF_ERROR(CopySampling(forward, choices, chosen_tokens, log_probs));
  }
  if (focus_ >= 0 && runner.outcome(focus_).status.ok()) {
    const auto begin = chosen_tokens.begin() + FirstRowOf(trees_, focus_);
    const auto nodes = static_cast<ptrdiff_t>(trees_[focus_].token.size());
    RETURN_IF_ERROR(CopyTree({begin, begin + nodes}, runner.outcome(focus_)));
  }
  RETURN_IF_ERROR(device_.Synchronize());
  worker_.Start(std::move(sample_));
  return absl::OkStatus();
}

absl::Status ShadowVerifier::CopySampling(const ForwardResult& forward, View2<const float> choices,
                                          std::span<const TokenId> chosen, std::span<const float> log_prob) {
  if (!Wants(ShadowKernel::kSampleTarget) && !Wants(ShadowKernel::kRecordedStep)) {
    return absl::OkStatus();
  }
  ShadowSample::Sampling& to = sample_->sampling.emplace();
  to.vocabulary = forward.logits.columns;
  to.eager = std::move(eager_);
  for (const ShadowRow& row : sample_->rows) {
    if (row.tree >= 0) {
      to.params.push_back(trees_[row.tree].sampling);
      to.position.push_back(row.position + 1);
      to.chosen.push_back(chosen[row.row]);
      to.log_prob.push_back(log_prob[row.row]);
    }
  }
  if (choices.data != forward.logits.data) {
    RETURN_IF_ERROR(CopyLogits(choices, to.choices));
  }
  return CopyLogits(forward.logits, to.logits);
}

absl::Status ShadowVerifier::CopyTree(std::vector<TokenId> chosen, const TreeOutcome& outcome) {
  const StepTree& tree = trees_[focus_];
  sample_->tree = ShadowSample::Tree{.token = {tree.token.begin(), tree.token.end()},
                                     .parent = {tree.parent.begin(), tree.parent.end()},
                                     .chosen = std::move(chosen),
                                     .path = {outcome.path.begin(), outcome.path.end()},
                                     .bonus = outcome.bonus};
  if (sample_->moves.has_value()) {
    ShadowSample::Moves& moves = *sample_->moves;
    moves.after.resize(outcome.path.size() * static_cast<size_t>(moves.row_bytes));
    RETURN_IF_ERROR(
        CopySlots(moves.layer, std::span(moves.slot).first(outcome.path.size()), moves.after.data()));
  }
  return absl::OkStatus();
}

}  // namespace arborist::verifier
