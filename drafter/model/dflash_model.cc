#include "drafter/model/dflash_model.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace arborist::drafter {

DFlashModel::DFlashModel(DFlashSettings settings, const PassLimits& limits, PlacedWeights weights,
                         Scratch scratch, const kernels::KernelSet& kernels, Device& device)
    : settings_(std::move(settings)),
      limits_(limits),
      kernels_(kernels),
      device_(&device),
      weights_(std::move(weights)),
      scratch_(std::move(scratch)),
      tables_(device) {}

absl::StatusOr<std::unique_ptr<DFlashModel>> DFlashModel::Create(DFlashSettings settings,
                                                                 DFlashWeights weights,
                                                                 const PassLimits& limits,
                                                                 const kernels::KernelSet& kernels,
                                                                 Device& device) {
  ASSIGN_OR_RETURN(PlacedWeights placed, PlacedWeights::Place(std::move(weights), device));
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Allocate(settings, limits, device));
  std::unique_ptr<DFlashModel> model(
      new DFlashModel(std::move(settings), limits, std::move(placed), std::move(scratch), kernels, device));
  RETURN_IF_ERROR(model->PlaceTables());
  Carver counter(nullptr);
  BlockBatch::Carve(model->settings_, 1, 0, counter);
  ASSIGN_OR_RETURN(model->host_inputs_, device.AllocateHost(counter.bytes(), "inputs of one block"));
  ASSIGN_OR_RETURN(model->device_inputs_, device.Allocate(counter.bytes(), "inputs of one block"));
  Carver host(model->host_inputs_.data()), there(model->device_inputs_.data());
  model->host_batch_ = BlockBatch::Carve(model->settings_, 1, 0, host);
  model->device_batch_ = BlockBatch::Carve(model->settings_, 1, 0, there);
  const size_t chunk = static_cast<size_t>(kContextChunk * model->settings_.hidden);
  ASSIGN_OR_RETURN(model->host_features_, device.AllocateHost(chunk * sizeof(BFloat16), "features"));
  ASSIGN_OR_RETURN(model->device_features_, device.Allocate(chunk * sizeof(BFloat16), "features"));
  ASSIGN_OR_RETURN(model->wide_features_, device.Allocate(chunk * sizeof(float), "features"));
  RETURN_IF_ERROR(device.Synchronize());  // the host's side of every copy may go now
  return model;
}

absl::Status DFlashModel::PlaceTables() {
  // The block of the last position reaches past it.
  const int64_t positions = settings_.max_positions + settings_.block, depths = settings_.block - 1;
  rotary_ = std::make_unique<RotaryTables>(settings_.rotary, settings_.head_dim, positions);
  counting_.resize(std::max<int64_t>(positions, kContextChunk));
  std::iota(counting_.begin(), counting_.end(), 0);
  for (int32_t row = 0; row < std::max<int64_t>(limits_.append_rows, kContextChunk); ++row) {
    feature_row_.push_back(TokenId{row});
  }
  for (int64_t s = 0; s < limits_.streams; ++s) {
    for (int64_t d = 0; d < depths; ++d) {
      head_row_.push_back(
          static_cast<int32_t>(s * settings_.block + settings_.reading.first_predicting_slot + d));
    }
  }
  const auto place = [&](const auto* data, size_t count) {
    return tables_.Place(data, count * sizeof(*data), "positions and rotations");
  };
  const View2<const float> cosine = rotary_->cosine(), sine = rotary_->sine();
  const size_t angles = static_cast<size_t>(cosine.rows * cosine.columns);
  ASSIGN_OR_RETURN(const void* placed_cosine, place(cosine.data, angles));
  ASSIGN_OR_RETURN(const void* placed_sine, place(sine.data, angles));
  ASSIGN_OR_RETURN(const void* counting, place(counting_.data(), counting_.size()));
  ASSIGN_OR_RETURN(const void* feature_rows, place(feature_row_.data(), feature_row_.size()));
  ASSIGN_OR_RETURN(const void* head_rows, place(head_row_.data(), head_row_.size()));
  cosine_ = {static_cast<const float*>(placed_cosine), cosine.rows, cosine.columns, cosine.row_stride};
  sine_ = {static_cast<const float*>(placed_sine), sine.rows, sine.columns, sine.row_stride};
  position_of_ = static_cast<const int32_t*>(counting);
  feature_rows_ = static_cast<const TokenId*>(feature_rows);
  head_rows_ = static_cast<const int32_t*>(head_rows);
  return absl::OkStatus();
}

ForwardPass DFlashModel::Pass() const {
  return {kernels_, device_->stream(), settings_, cosine_, sine_, scratch_};
}

absl::Status DFlashModel::AppendContext(int32_t first_position, View2<const float> features,
                                        ContextCache& cache) {
  if (features.columns != settings_.hidden) {
    return absl::InvalidArgumentError(
        absl::StrCat("features.columns=", features.columns, ", expected ", settings_.hidden));
  }
  if (first_position < 0 || features.rows > settings_.max_positions - first_position) {
    return absl::OutOfRangeError(absl::StrCat("features of positions ", first_position, " to ",
                                              first_position + features.rows,
                                              ", expected below max_positions=", settings_.max_positions));
  }
  ASSIGN_OR_RETURN(const ContextCache::Slot slot,
                   cache.Reserve(first_position, static_cast<int32_t>(features.rows)));
  const ForwardPass pass = Pass();
  for (int32_t done = 0; done < slot.rows; done += kContextChunk) {
    const int32_t rows = std::min(kContextChunk, slot.rows - done);
    const int32_t begin = slot.first_position + done;
    const View2<const float> chunk{features.row(begin - first_position), rows, features.columns,
                                   features.row_stride};
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const int64_t layer = static_cast<int64_t>(i);
      RETURN_IF_ERROR(WriteContextLayer(pass, weights_.layers[i], chunk, {position_of_ + begin, rows},
                                        cache.key(layer, begin), cache.value(layer, begin)));
    }
  }
  cache.MarkWritten(slot);
  return absl::OkStatus();
}

absl::Status DFlashModel::AppendFeatures(int32_t first_position, int32_t rows,
                                         std::span<const BFloat16> features, ContextCache& cache) {
  const int64_t hidden = settings_.hidden;
  Check(rows <= kContextChunk && static_cast<int64_t>(features.size()) == rows * hidden,
        "features of one chunk");
  std::memcpy(host_features_.data(), features.data(), features.size_bytes());
  RETURN_IF_ERROR(device_->Copy(device_features_.data(), host_features_.data(), features.size_bytes()));
  const View2<float> wide{wide_features_.As<float>(), rows, hidden, hidden};
  RETURN_IF_ERROR(kernels_.embedding_lookup({.token = {feature_rows_, rows},
                                             .table = {device_features_.data(), DType::kBF16, rows, hidden},
                                             .out = wide},
                                            device_->stream()));
  RETURN_IF_ERROR(AppendContext(first_position, {wide.data, rows, hidden, hidden}, cache));
  return device_->Synchronize();  // the next chunk comes through the same memory
}

absl::Status DFlashModel::Forward(const BlockBatch& batch, const ContextPlanes& planes, int64_t max_context,
                                  const LayerObserver& observer) {
  Check(batch.streams <= limits_.streams && batch.append_rows <= limits_.append_rows,
        "a pass is within the limits that scratch was made for");
  RETURN_IF_ERROR(Embed(batch));
  const ForwardPass pass = Pass();
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const int64_t layer = static_cast<int64_t>(i);
    RETURN_IF_ERROR(RunBlockLayer(pass, layer, weights_.layers[i], NormAfter(i), batch, planes, max_context));
    if (observer) {
      const auto view = [&](const float* rows, int64_t columns) {
        return View2<const float>{rows, settings_.block, columns, columns};
      };
      observer({layer, view(scratch_.residual, settings_.hidden), view(scratch_.key, settings_.kv_width()),
                view(scratch_.value, settings_.kv_width())});
    }
  }
  return absl::OkStatus();
}

absl::Status DFlashModel::Embed(const BlockBatch& batch) {
  const int64_t rows = batch.streams * settings_.block, hidden = settings_.hidden;
  RETURN_IF_ERROR(kernels_.embedding_lookup({.token = {batch.token.data, rows},
                                             .table = weights_.embedding,
                                             .out = {scratch_.residual, rows, hidden, hidden}},
                                            device_->stream()));
  RETURN_IF_ERROR(kernels_.rms_norm({.x = {scratch_.residual, rows, hidden, hidden},
                                     .weight = weights_.layers.front().input_norm,
                                     .out = {scratch_.normed, rows, hidden, hidden},
                                     .epsilon = settings_.epsilon},
                                    device_->stream()));
  if (batch.append_rows == 0) {
    return absl::OkStatus();
  }
  // Widened, nothing more: features go to the key and value projections as they are.
  return kernels_.embedding_lookup(
      {.token = {feature_rows_, batch.append_rows},
       .table = {batch.feature.data, DType::kBF16, batch.append_rows, hidden},
       .out = {scratch_.normed + rows * hidden, batch.append_rows, hidden, hidden}},
      device_->stream());
}

View1<const float> DFlashModel::NormAfter(size_t layer) const {
  if (layer + 1 < weights_.layers.size()) {
    return weights_.layers[layer + 1].input_norm;
  }
  return settings_.reading.final_norm ? weights_.final_norm : View1<const float>{};
}

absl::StatusOr<View2<const float>> DFlashModel::Head(int64_t streams, int64_t depths) {
  const int64_t hidden = settings_.hidden, block_rows = streams * settings_.block, rows = streams * depths;
  Check(depths >= 1 && depths < settings_.block, "a block predicts 1 to block - 1 depths");
  if (!settings_.reading.final_norm) {
    RETURN_IF_ERROR(kernels_.copy_rows({.from = {scratch_.residual, block_rows, hidden, hidden},
                                        .into = {scratch_.normed, block_rows, hidden, hidden}},
                                       device_->stream()));
  }
  const float* first = scratch_.normed + settings_.reading.first_predicting_slot * hidden;
  if (streams > 1) {
    Check(depths == settings_.block - 1, "several streams are drafted to the full depth");
    RETURN_IF_ERROR(kernels_.gather_rows({.from = {scratch_.normed, block_rows, hidden, hidden},
                                          .row = {head_rows_, rows},
                                          .into = {scratch_.added, rows, hidden, hidden}},
                                         device_->stream()));
    first = scratch_.added;
  }
  const View2<float> logits{scratch_.logits, rows, settings_.vocabulary, settings_.vocabulary};
  RETURN_IF_ERROR(kernels_.linear(
      {.x = {first, rows, hidden, hidden}, .weight = weights_.head, .out = logits}, device_->stream()));
  return View2<const float>{logits.data, logits.rows, logits.columns, logits.row_stride};
}

absl::StatusOr<View2<const float>> DFlashModel::DraftBlock(const BlockInput& input,
                                                           const LayerObserver& observer) {
  if (input.position < 0 || input.position >= settings_.max_positions) {
    return absl::OutOfRangeError(absl::StrCat("position=", input.position, ", expected below max_positions=",
                                              settings_.max_positions, " of the drafter"));
  }
  host_batch_.SetStream(settings_, 0, input.bonus, input.position, input.context);
  RETURN_IF_ERROR(device_->Copy(device_inputs_.data(), host_inputs_.data(), host_inputs_.bytes()));
  RETURN_IF_ERROR(Forward(device_batch_, input.context.planes, input.context.rows, observer));
  ASSIGN_OR_RETURN(const View2<const float> logits, Head(1, input.depths));
  RETURN_IF_ERROR(device_->Synchronize());
  return logits;
}

View2<const float> DFlashModel::block_hidden() const {
  return {scratch_.normed, settings_.block, settings_.hidden, settings_.hidden};
}

}  // namespace arborist::drafter
