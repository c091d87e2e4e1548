#include "drafter/model/dflash_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "drafter/model/dflash_layer.h"

namespace arborist::drafter {

DFlashModel::DFlashModel(DFlashSettings settings, DFlashWeights weights, const kernels::KernelSet& kernels)
    : settings_(std::move(settings)),
      weights_(std::move(weights)),
      kernels_(kernels),
      // The block of the last position reaches past it.
      rotary_(settings_.rotary, settings_.head_dim, settings_.max_positions + settings_.block),
      scratch_(settings_) {}

absl::Status DFlashModel::AppendContext(int32_t first_position, View2<const float> features,
                                        ContextCache& cache, StreamView stream) {
  if (features.columns != settings_.hidden) {
    return absl::InvalidArgumentError(
        absl::StrCat("features.columns=", features.columns, ", expected ", settings_.hidden));
  }
  if (first_position < 0 || features.rows > settings_.max_positions - first_position) {
    return absl::OutOfRangeError(absl::StrCat("features of positions ", first_position, " to ",
                                              first_position + features.rows,
                                              ", expected below max_positions=", settings_.max_positions));
  }
  const ForwardPass pass{kernels_, stream, settings_, rotary_, scratch_};
  const ContextCache::Slot slot = cache.Reserve(first_position, static_cast<int32_t>(features.rows));
  for (int32_t done = 0; done < slot.rows; done += kContextChunk) {
    const int32_t rows = std::min(kContextChunk, slot.rows - done);
    const int32_t begin = slot.first_position + done;
    for (int32_t i = 0; i < rows; ++i) {
      scratch_.position[i] = begin + i;
    }
    const View2<const float> chunk{features.row(begin - first_position), rows, features.columns,
                                   features.row_stride};
    for (size_t i = 0; i < weights_.layers.size(); ++i) {
      const int64_t layer = static_cast<int64_t>(i);
      RETURN_IF_ERROR(WriteContextLayer(pass, weights_.layers[i], chunk, {scratch_.position.data(), rows},
                                        cache.key(layer, begin), cache.value(layer, begin)));
    }
  }
  cache.MarkWritten(slot);
  return absl::OkStatus();
}

absl::StatusOr<View2<const float>> DFlashModel::DraftBlock(const BlockInput& input, StreamView stream,
                                                           const LayerObserver& observer) {
  Check(input.depths >= 1 && input.depths < settings_.block, "a block predicts 1 to block - 1 depths");
  if (input.position < 0 || input.position >= settings_.max_positions) {
    return absl::OutOfRangeError(absl::StrCat("position=", input.position, ", expected below max_positions=",
                                              settings_.max_positions, " of the drafter"));
  }
  const ForwardPass pass{kernels_, stream, settings_, rotary_, scratch_};
  RETURN_IF_ERROR(Embed(input, stream));
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    const int64_t layer = static_cast<int64_t>(i);
    SetVisibility(settings_.layers[i], input.context, input.position, settings_.block, scratch_);
    RETURN_IF_ERROR(RunBlockLayer(pass, layer, weights_.layers[i], input.context));
    if (observer) {
      const auto view = [&](const std::vector<float>& rows, int64_t columns) {
        return View2<const float>{rows.data(), settings_.block, columns, columns};
      };
      observer({layer, view(scratch_.residual, settings_.hidden), view(scratch_.key, settings_.kv_width()),
                view(scratch_.value, settings_.kv_width())});
    }
  }
  return Head(input.depths, stream);
}

absl::Status DFlashModel::Embed(const BlockInput& input, StreamView stream) {
  const int32_t block = settings_.block;
  for (int32_t i = 0; i < block; ++i) {
    scratch_.token[i] = TokenId{settings_.mask_token};
    scratch_.position[i] = input.position + i;
  }
  if (settings_.reading.bonus_in_first_slot) {
    scratch_.token[0] = input.bonus;
  }
  return kernels_.embedding_lookup(
      {.token = {scratch_.token.data(), block},
       .table = weights_.embedding,
       .out = {scratch_.residual.data(), block, settings_.hidden, settings_.hidden}},
      stream);
}

absl::StatusOr<View2<const float>> DFlashModel::Head(int depths, StreamView stream) {
  const int64_t hidden = settings_.hidden;
  if (settings_.reading.final_norm) {
    RETURN_IF_ERROR(kernels_.rms_norm({.x = {scratch_.residual.data(), settings_.block, hidden, hidden},
                                       .weight = {weights_.final_norm.data(), hidden},
                                       .out = {scratch_.normed.data(), settings_.block, hidden, hidden},
                                       .epsilon = settings_.epsilon},
                                      stream));
  } else {
    std::copy(scratch_.residual.begin(), scratch_.residual.end(), scratch_.normed.begin());
  }
  const float* first = scratch_.normed.data() + settings_.reading.first_predicting_slot * hidden;
  const View2<float> logits{scratch_.logits.data(), depths, settings_.vocabulary, settings_.vocabulary};
  RETURN_IF_ERROR(kernels_.linear(
      {.x = {first, depths, hidden, hidden}, .weight = weights_.head, .out = logits}, stream));
  return View2<const float>{logits.data, logits.rows, logits.columns, logits.row_stride};
}

View2<const float> DFlashModel::block_hidden() const {
  return {scratch_.normed.data(), settings_.block, settings_.hidden, settings_.hidden};
}

}  // namespace arborist::drafter
