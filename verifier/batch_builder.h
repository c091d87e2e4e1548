#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"
#include "verifier/step_batch.h"

namespace arborist::verifier {

// The slot of a sequence's logical row: prefix rows and tree rows both come from here, and from nowhere else.
int32_t SlotOf(std::span<const int32_t> page_table, int32_t logical_row);

// Appends one sequence with the prompt tokens of positions [first_position, first_position + tokens.size()):
// a chain whose keys all lie at their positions. No logits. The batch has room for it.
void AppendChunk(std::span<const int32_t> page_table, int32_t first_position, std::span<const TokenId> tokens,
                 StepBatch& batch);

// Appends one sequence with a tree (parent[0] = -1, parent[i] < i, depth <= kMaxTreeDepth) whose root is the
// committed token at root_position; K/V of all positions before it is in the cache. Node i lies at logical
// row root_position + i, but its position is root_position + depth. Logits of every row.
void AppendTree(std::span<const int32_t> page_table, int32_t root_position, std::span<const TokenId> token,
                std::span<const int32_t> parent, StepBatch& batch);

}  // namespace arborist::verifier
