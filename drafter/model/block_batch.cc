#include "drafter/model/block_batch.h"

#include <algorithm>
#include <cstring>

namespace arborist::drafter {
namespace {

struct Range {
  int32_t context_begin;
  int32_t block_begin;
  int32_t block_end;
};

// What slot i of a block sees whose slot 0 has `position`.
Range RangeOf(const LayerVisibility& layer, const ContextView& context, int32_t position, int32_t block,
              int32_t i) {
  const int64_t query = static_cast<int64_t>(position) + i;
  int64_t context_begin = 0, block_begin = 0, block_end = block;
  if (layer.window > 0) {
    const int64_t oldest = query - layer.window + 1;
    context_begin = std::clamp<int64_t>(oldest - context.first_position, 0, context.rows);
    block_begin = std::max<int64_t>(oldest - position, 0);
    block_end = std::min<int64_t>(i + layer.window, block);
  }
  if (layer.causal) {
    block_end = i + 1;
  }
  return {static_cast<int32_t>(context_begin), static_cast<int32_t>(block_begin),
          static_cast<int32_t>(block_end)};
}

}  // namespace

BlockBatch BlockBatch::Carve(const DFlashSettings& settings, int64_t streams, int64_t append_rows,
                             Carver& carver) {
  const int64_t rows = streams * settings.block, layers = static_cast<int64_t>(settings.layers.size());
  const auto ints = [&](int64_t count) { return View1<int32_t>{carver.Take<int32_t>(count), count}; };
  BlockBatch batch;
  batch.streams = streams;
  batch.append_rows = append_rows;
  batch.token = {carver.Take<TokenId>(rows), rows};
  batch.position = ints(rows + append_rows);
  batch.context_first = ints(streams);
  batch.context_rows = ints(streams);
  batch.context_begin = ints(layers * rows);
  batch.block_begin = ints(layers * rows);
  batch.block_end = ints(layers * rows);
  batch.append_slot = ints(append_rows);
  batch.feature = {carver.Take<BFloat16>(append_rows * settings.hidden), append_rows, settings.hidden,
                   settings.hidden};
  return batch;
}

void BlockBatch::SetStream(const DFlashSettings& settings, int64_t stream, TokenId bonus, int32_t position0,
                           const ContextView& context) {
  const int32_t block = settings.block;
  const int64_t layers = static_cast<int64_t>(settings.layers.size());
  context_first[stream] = static_cast<int32_t>(context.first_row);
  context_rows[stream] = static_cast<int32_t>(context.rows);
  for (int32_t i = 0; i < block; ++i) {
    token[stream * block + i] = TokenId{settings.mask_token};
    position[stream * block + i] = position0 + i;
  }
  if (settings.reading.bonus_in_first_slot) {
    token[stream * block] = bonus;
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int32_t i = 0; i < block; ++i) {
      const int64_t at = (layer * streams + stream) * block + i;
      const Range range = RangeOf(settings.layers[layer], context, position0, block, i);
      context_begin[at] = range.context_begin;
      block_begin[at] = range.block_begin;
      block_end[at] = range.block_end;
    }
  }
}

void BlockBatch::SetAppend(const DFlashSettings& settings, int64_t row, int32_t position_of_row, int64_t slot,
                           const BFloat16* values) {
  position[streams * settings.block + row] = position_of_row;
  append_slot[row] = static_cast<int32_t>(slot);
  std::memcpy(feature.row(row), values, settings.hidden * sizeof(BFloat16));
}

}  // namespace arborist::drafter
