#include "verifier/model/decoder_model.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"
#include "common/tree/token_tree.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/model/device_weights.h"
#include "verifier/model/layer.h"

namespace arborist::verifier {
namespace {

// Of the layers: enough to tell where a fault was, few enough to cost less than a hundredth of a small model.
constexpr int kParts = 4;

absl::Status CheckOptions(const ModelOptions& options, const ModelConfig& config) {
  const auto error = [](const char* field, int64_t value, const std::string& expectation) {
    return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expectation));
  };
  if (options.max_rows < 1) {
    return error("max_rows", options.max_rows, "at least 1");
  }
  if (options.max_logits_rows < 0 || options.max_logits_rows > options.max_rows) {
    return error("max_logits_rows", options.max_logits_rows, "0 to max_rows");
  }
  // Nodes of a tree at the context's end are computed beyond it, but never committed.
  const int64_t longest = config.max_position_embeddings + kMaxTreeDepth;
  if (options.max_context < 1 || options.max_context > longest) {
    return error("max_context", options.max_context,
                 absl::StrCat("1 to max_position_embeddings + ", kMaxTreeDepth, " = ", longest));
  }
  for (const int layer : options.tap_layers) {
    if (layer < 0 || layer >= config.layers) {
      return error("tap_layers", layer, absl::StrCat("layers in [0, ", config.layers, ")"));
    }
    if (std::count(options.tap_layers.begin(), options.tap_layers.end(), layer) > 1) {
      return error("tap_layers", layer, "every layer at most once");
    }
  }
  return absl::OkStatus();
}

// Rows of a tree lie in the slots behind its root, one a node.
int64_t MaxPages(const ModelOptions& options) {
  return CeilDiv(options.max_context + kMaxTreeBudget, int64_t{kernels::kPageRows});
}

// A model on one rank owns nobody to talk to; the group has no state that one rank uses.
Communicator& Alone() {
  static LocalGroup group(1);
  static LocalCommunicator communicator(group, 0);
  return communicator;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Load(const ModelOptions& options,
                                                   const kernels::KernelSet& kernels, Device& device) {
  ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(options.directory));
  Interpretation meaning = Interpret(config);
  ASSIGN_OR_RETURN(
      std::unique_ptr<Model> model,
      DecoderModel::Create(options, std::move(config), std::move(meaning), kernels, device, Alone()));
  return model;
}

absl::StatusOr<std::unique_ptr<DecoderModel>> DecoderModel::Create(const ModelOptions& options,
                                                                   ModelConfig config, Interpretation meaning,
                                                                   const kernels::KernelSet& kernels,
                                                                   Device& device,
                                                                   Communicator& communicator) {
  RETURN_IF_ERROR(CheckOptions(options, config));
  ASSIGN_OR_RETURN(const ShardPlan plan, ShardPlan::Make(config, communicator.rank(), communicator.size()));
  ASSIGN_OR_RETURN(ModelWeights weights, LoadModelWeights(options.directory, config, plan));
  RETURN_IF_ERROR(MoveToDevice(weights, device));
  ASSIGN_OR_RETURN(RopeTables rope, RopeTables::Create(meaning, options.max_context, device));
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Create(config, plan,
                                                    {.max_rows = options.max_rows,
                                                     .max_logits_rows = options.max_logits_rows,
                                                     .taps = static_cast<int64_t>(options.tap_layers.size()),
                                                     .max_pages = MaxPages(options)},
                                                    device));
  return std::unique_ptr<DecoderModel>(new DecoderModel(options, std::move(config), std::move(meaning), plan,
                                                        std::move(weights), std::move(rope),
                                                        std::move(scratch), kernels, device, communicator));
}

DecoderModel::DecoderModel(const ModelOptions& options, ModelConfig config, Interpretation meaning,
                           ShardPlan plan, ModelWeights weights, RopeTables rope, Scratch scratch,
                           const kernels::KernelSet& kernels, Device& device, Communicator& communicator)
    : options_(options),
      config_(std::move(config)),
      meaning_(std::move(meaning)),
      plan_(plan),
      weights_(std::move(weights)),
      rope_(std::move(rope)),
      scratch_(std::move(scratch)),
      host_reads_batch_(device.kind() == DeviceKind::kCpu),
      device_(device),
      marked_layers_(static_cast<int>(CeilDiv(config_.layers, kParts))),
      rank_{config_, meaning_, plan_, kernels, device.stream(), communicator, rope_, scratch_} {}

absl::Status DecoderModel::CheckBatch(const StepBatchView& batch, const KvPlanes& planes) const {
  if (batch.rows < 0 || batch.rows > options_.max_rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows=", batch.rows, ", expected at most max_rows=", options_.max_rows));
  }
  if (batch.logits_rows > options_.max_logits_rows) {
    return absl::InvalidArgumentError(absl::StrCat(
        "logits rows=", batch.logits_rows, ", expected at most max_logits_rows=", options_.max_logits_rows));
  }
  // Only the host's arrays can be looked into here.
  for (int64_t i = 0; i < batch.logits_rows && host_reads_batch_; ++i) {
    if (batch.logits_row[i] < 0 || batch.logits_row[i] >= batch.rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("logits_row=", batch.logits_row[i], ", expected rows in [0, ", batch.rows, ")"));
    }
  }
  if (planes.layers() != config_.layers || planes.latent_row() != config_.latent_row()) {
    return absl::InvalidArgumentError(absl::StrCat("planes of ", planes.layers(), " layers and rows of ",
                                                   planes.latent_row(), ", expected ", config_.layers,
                                                   " and ", config_.latent_row()));
  }
  return absl::OkStatus();
}

// Leaves the first layer's input and its norm.
absl::Status DecoderModel::Embed(const StepBatchView& batch) {
  const View2<float> residual = Scratch::Rows(scratch_.residual, batch.rows, config_.hidden_size);
  RETURN_IF_ERROR(rank_.kernels.embedding_lookup(
      {.token = {batch.token, batch.rows}, .table = weights_.embedding, .out = residual}, rank_.stream));
  return rank_.kernels.rms_norm({.x = Const(residual),
                                 .weight = weights_.layers[0].input_norm,
                                 .out = Scratch::Rows(scratch_.normed, batch.rows, config_.hidden_size),
                                 .epsilon = meaning_.layer_epsilon},
                                rank_.stream);
}

View2<float> DecoderModel::TapOf(int layer, int64_t rows) const {
  const auto& taps = options_.tap_layers;
  const auto tap = std::find(taps.begin(), taps.end(), layer);
  if (tap == taps.end()) {
    return {};
  }
  const int64_t hidden = config_.hidden_size, all = static_cast<int64_t>(taps.size()) * hidden;
  return {scratch_.taps + (tap - taps.begin()) * hidden, rows, hidden, all};
}

absl::Status DecoderModel::ComputeLogits(const StepBatchView& batch) {
  const int64_t wanted = batch.logits_rows, hidden = config_.hidden_size;
  if (wanted == 0) {
    return absl::OkStatus();
  }
  const View2<float> selected = Scratch::Rows(scratch_.selected, wanted, hidden);
  const View2<float> logits = Scratch::Rows(scratch_.logits, wanted, config_.vocab_size);
  RETURN_IF_ERROR(
      rank_.kernels.gather_rows({.from = Const(Scratch::Rows(scratch_.normed, batch.rows, hidden)),
                                 .row = {batch.logits_row, wanted},
                                 .into = selected},
                                rank_.stream));
  if (plan_.ranks() == 1) {
    return rank_.kernels.linear({.x = Const(selected), .weight = weights_.head, .out = logits}, rank_.stream);
  }
  // Every rank has its rows of the vocabulary; slices of one size are gathered, then put side by side.
  const int64_t slice = plan_.vocabulary_slice();
  RETURN_IF_ERROR(
      rank_.kernels.linear({.x = Const(selected),
                            .weight = weights_.head,
                            .out = {scratch_.logits_slice, wanted, plan_.vocabulary().count, slice}},
                           rank_.stream));
  const size_t count = static_cast<size_t>(wanted * slice);
  RETURN_IF_ERROR(rank_.communicator.AllGather(
      {scratch_.logits_slice, count}, {scratch_.logits_all, count * static_cast<size_t>(plan_.ranks())}));
  for (int64_t rank = 0; rank < plan_.ranks(); ++rank) {
    const int64_t begin = std::min(rank * slice, config_.vocab_size);
    const int64_t columns = std::min(slice, config_.vocab_size - begin);
    RETURN_IF_ERROR(rank_.kernels.copy_rows(
        {.from = {scratch_.logits_all + rank * wanted * slice, wanted, columns, slice},
         .into = {logits.data + begin, wanted, columns, config_.vocab_size}},
        rank_.stream));
  }
  return absl::OkStatus();
}

absl::StatusOr<ForwardResult> DecoderModel::Forward(const StepBatchView& batch, KvPlanes& planes) {
  RETURN_IF_ERROR(CheckBatch(batch, planes));
  RETURN_IF_ERROR(Embed(batch));
  for (int layer = 0; layer < config_.layers; ++layer) {
    if (!host_reads_batch_ && layer > 0 && layer % marked_layers_ == 0) {
      RETURN_IF_ERROR(device_.Mark(
          absl::StrCat("layers ", layer, " to ", std::min<int>(layer + marked_layers_, config_.layers) - 1)));
    }
    const View1<const float> next_norm =
        layer + 1 < config_.layers ? weights_.layers[layer + 1].input_norm : weights_.norm;
    RETURN_IF_ERROR(ForwardLayer(rank_, weights_.layers[layer], next_norm, TapOf(layer, batch.rows), batch,
                                 planes, layer));
  }
  RETURN_IF_ERROR(ComputeLogits(batch));
  const int64_t tap_columns = static_cast<int64_t>(options_.tap_layers.size()) * config_.hidden_size;
  return ForwardResult{.logits = Const(Scratch::Rows(scratch_.logits, batch.logits_rows, config_.vocab_size)),
                       .taps = Const(Scratch::Rows(scratch_.taps, batch.rows, tap_columns))};
}

}  // namespace arborist::verifier
