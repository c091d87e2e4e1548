#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/device/device.h"
#include "common/tensor/view.h"
#include "drafter/context_cache.h"
#include "drafter/model/block_batch.h"
#include "drafter/model/dflash_config.h"
#include "drafter/model/dflash_layer.h"
#include "drafter/model/dflash_weights.h"
#include "drafter/model/placed_weights.h"
#include "drafter/model/rotary_tables.h"
#include "drafter/model/scratch.h"
#include "kernels/kernel_set.h"

namespace arborist::drafter {

// What one layer left behind in the device's memory; valid during the call.
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

// The DFlash draft model (z-lab): one pass over [bonus, mask, mask, ...] predicts a whole block; several
// sequences' blocks make one pass. It owns its scratch, so one call at a time. On CUDA calls only enqueue.
class DFlashModel {
 public:
  // The memory that weights' matrices lie in outlives the model, and so do `kernels` (the device's column)
  // and `device`.
  static absl::StatusOr<std::unique_ptr<DFlashModel>> Create(DFlashSettings settings, DFlashWeights weights,
                                                             const PassLimits& limits,
                                                             const kernels::KernelSet& kernels,
                                                             Device& device);

  // Keys and values of all layers for feature rows [rows, hidden], in the device's memory, of neighbouring
  // positions. Rows that the cache has no room for (older than its window) are skipped. Positions are below
  // max_positions.
  absl::Status AppendContext(int32_t first_position, View2<const float> features, ContextCache& cache);

  // The same for bf16 rows [rows, hidden] in the host's memory; on return they may go. At most kContextChunk.
  absl::Status AppendFeatures(int32_t first_position, int32_t rows, std::span<const BFloat16> features,
                              ContextCache& cache);

  // The pass up to the last layer. `batch` lies in the device's memory and is within the limits.
  absl::Status Forward(const BlockBatch& batch, const ContextPlanes& planes, int64_t max_context,
                       const LayerObserver& observer = nullptr);
  // Logits [streams * depths, vocabulary] of the last pass, valid until the next: row s * depths + d is for
  // the token at position + 1 + d of stream s. With several streams depths is block - 1.
  absl::StatusOr<View2<const float>> Head(int64_t streams, int64_t depths);

  // Both for one sequence: logits [depths, vocabulary] in the device's memory, valid until the next call.
  absl::StatusOr<View2<const float>> DraftBlock(const BlockInput& input,
                                                const LayerObserver& observer = nullptr);

  // [block, hidden] after the final norm of the last DraftBlock, in the device's memory.
  View2<const float> block_hidden() const;
  const DFlashSettings& settings() const { return settings_; }
  const PassLimits& limits() const { return limits_; }
  Device& device() const { return *device_; }

 private:
  DFlashModel(DFlashSettings settings, const PassLimits& limits, PlacedWeights weights, Scratch scratch,
              const kernels::KernelSet& kernels, Device& device);
  absl::Status PlaceTables();
  ForwardPass Pass() const;
  absl::Status Embed(const BlockBatch& batch);
  // What reads a layer's outcome first: the next layer's norm, the final one, or none.
  View1<const float> NormAfter(size_t layer) const;

  DFlashSettings settings_;
  PassLimits limits_;
  const kernels::KernelSet& kernels_;
  Device* device_;
  PlacedWeights weights_;
  Scratch scratch_;
  Placement tables_;
  std::vector<int32_t> counting_;     // 0, 1, 2 ...
  std::vector<TokenId> feature_row_;  // the same
  std::vector<int32_t> head_row_;     // [streams * (block - 1)] rows of the blocks that predict
  std::unique_ptr<RotaryTables> rotary_;
  View2<const float> cosine_, sine_;
  const int32_t* position_of_ = nullptr;  // counting_ and the other two where the device reads them
  const TokenId* feature_rows_ = nullptr;
  const int32_t* head_rows_ = nullptr;
  // Inputs of AppendFeatures: bf16 rows on both sides, widened.
  DeviceMemory host_features_, device_features_, wide_features_;
  // Inputs of DraftBlock.
  DeviceMemory host_inputs_, device_inputs_;
  BlockBatch host_batch_, device_batch_;
};

}  // namespace arborist::drafter
