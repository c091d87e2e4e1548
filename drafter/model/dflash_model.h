#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"
#include "common/weights/checkpoint.h"
#include "drafter/context_cache.h"
#include "drafter/model/dflash_config.h"
#include "drafter/model/dflash_weights.h"
#include "drafter/model/rotary_tables.h"
#include "drafter/model/scratch.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {

// What one layer left behind; valid during the call.
struct LayerTrace {
  int64_t layer = 0;
  View2<const float> residual;     // [block, hidden], after the layer
  View2<const float> block_key;    // [block, kv_heads * head_dim], rotated
  View2<const float> block_value;  // [block, kv_heads * head_dim]
};
using LayerObserver = std::function<void(const LayerTrace&)>;

struct BlockInput {
  TokenId bonus{};       // the last committed token: slot 0
  int32_t position = 0;  // its position, in [0, max_positions)
  ContextView context;   // committed positions before it
  int depths = 0;        // logits wanted: 1 .. block - 1
};

// The DFlash draft model (z-lab): one pass over [bonus, mask, mask, ...] predicts a whole block. It owns its
// scratch, so one call at a time; weights' memory must outlive it.
class DFlashModel {
 public:
  DFlashModel(DFlashSettings settings, DFlashWeights weights, const kernels::KernelSet& kernels);

  // Keys and values of all layers for feature rows [rows, hidden] of neighbouring positions. Rows that the
  // cache has no room for (older than its window) are skipped. Positions are below max_positions.
  absl::Status AppendContext(int32_t first_position, View2<const float> features, ContextCache& cache,
                             StreamView stream);

  // Logits [depths, vocabulary] of the tokens at position + 1 ... + depths; valid until the next call.
  absl::StatusOr<View2<const float>> DraftBlock(const BlockInput& input, StreamView stream,
                                                const LayerObserver& observer = nullptr);

  // [block, hidden] after the final norm of the last DraftBlock.
  View2<const float> block_hidden() const;
  const DFlashSettings& settings() const { return settings_; }

 private:
  absl::Status Embed(const BlockInput& input, StreamView stream);
  absl::StatusOr<View2<const float>> Head(int depths, StreamView stream);

  DFlashSettings settings_;
  DFlashWeights weights_;
  const kernels::KernelSet& kernels_;
  RotaryTables rotary_;
  Scratch scratch_;
};

}  // namespace arborist::drafter
