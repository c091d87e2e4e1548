#pragma once

#include <cstdint>
#include <vector>

#include "common/base/ids.h"
#include "drafter/model/dflash_config.h"

namespace arborist::drafter {

// Context rows that are projected together.
inline constexpr int32_t kContextChunk = 64;

// Every activation of one forward pass, allocated once.
struct Scratch {
  explicit Scratch(const DFlashSettings& settings);

  std::vector<TokenId> token;                                  // [block]
  std::vector<int32_t> position;                               // [max(block, kContextChunk)]
  std::vector<int32_t> context_begin, block_begin, block_end;  // [block]
  std::vector<float> residual;                                 // [block, hidden]
  std::vector<float> normed;                                   // [max(block, kContextChunk), hidden]
  std::vector<float> added;       // [block, hidden]: what attention or MLP adds to the residual
  std::vector<float> query;       // [block, heads, head_dim]
  std::vector<float> key, value;  // [block, kv_heads, head_dim]
  std::vector<float> attention;   // [block, heads, head_dim]
  std::vector<float> gate, up;    // [block, intermediate]
  std::vector<float> logits;      // [block - 1, vocabulary]
};

}  // namespace arborist::drafter
