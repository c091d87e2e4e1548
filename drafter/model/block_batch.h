#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/tensor/dtype.h"
#include "common/tensor/view.h"
#include "drafter/context_cache.h"
#include "drafter/model/carver.h"
#include "drafter/model/dflash_config.h"

namespace arborist::drafter {

// What a forward pass reads besides weights and context: one block for each of `streams` sequences, and the
// features of committed positions whose keys and values are to enter the context first. All of it lies in one
// piece of memory, so one copy moves it to a device.
struct BlockBatch {
  int64_t streams = 0;
  int64_t append_rows = 0;
  View1<TokenId> token;          // [streams * block]
  View1<int32_t> position;       // [streams * block + append_rows]
  View1<int32_t> context_first;  // [streams] row of the planes
  View1<int32_t> context_rows;   // [streams]
  View1<int32_t> context_begin;  // [layers * streams * block], as block_attention_gqa wants them
  View1<int32_t> block_begin;    // [layers * streams * block]
  View1<int32_t> block_end;      // [layers * streams * block]
  View1<int32_t> append_slot;    // [append_rows] row of the planes, or -1: a padding row
  View2<BFloat16> feature;       // [append_rows, hidden]

  // Lays the arrays out in the carver's memory.
  static BlockBatch Carve(const DFlashSettings& settings, int64_t streams, int64_t append_rows,
                          Carver& carver);

  // On the host's side.
  void SetStream(const DFlashSettings& settings, int64_t stream, TokenId bonus, int32_t position,
                 const ContextView& context);
  // A block that sees no context; what it drafts is nobody's.
  void SetPadding(const DFlashSettings& settings, int64_t stream) {
    SetStream(settings, stream, TokenId{}, 0, ContextView());
  }
  void SetAppend(const DFlashSettings& settings, int64_t row, int32_t position, int64_t slot,
                 const BFloat16* values);
  void SetAppendPadding(const DFlashSettings& settings, int64_t row) {
    position[streams * settings.block + row] = 0;
    append_slot[row] = -1;
  }
};

}  // namespace arborist::drafter
