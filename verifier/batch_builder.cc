#include "verifier/batch_builder.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {
namespace {

using kernels::kMaxTailKeys;
using kernels::kPageRows;
using kernels::PrefixBlocks;

// Reserves the sequence's place; returns the index of its first row.
int BeginSequence(std::span<const int32_t> page_table, size_t rows, StepBatch& batch) {
  const auto pages = static_cast<size_t>(batch.pages_per_sequence);
  Check(page_table.size() <= pages, "a page table fits the batch");
  Check(batch.rows + rows <= batch.token.size(), "the scheduler counts rows");
  Check((batch.sequences + 1) * pages <= batch.page_table.size(), "the scheduler counts sequences");
  const auto table = batch.page_table.begin() + static_cast<ptrdiff_t>(batch.sequences * pages);
  std::fill(std::copy(page_table.begin(), page_table.end(), table), table + static_cast<ptrdiff_t>(pages),
            -1);
  const int first = batch.rows;
  batch.first_row[batch.sequences] = first;
  batch.sequences += 1;
  batch.rows += static_cast<int>(rows);
  batch.first_row[batch.sequences] = batch.rows;
  return first;
}

// Everything of a row but its tail.
void FillRow(int row, TokenId token, int32_t position, int32_t parent, int32_t write_slot, StepBatch& batch) {
  batch.token[row] = token;
  batch.position[row] = position;
  batch.sequence[row] = batch.sequences - 1;
  batch.parent[row] = parent;
  batch.write_slot[row] = write_slot;
  batch.prefix_blocks[row] = PrefixBlocks(position);
}

// Tail keys that lie at their positions: [64 * prefix_blocks, end). Returns how many.
int32_t FillTailByPosition(std::span<const int32_t> page_table, int row, int32_t end, StepBatch& batch) {
  int32_t* tail = batch.tail_slot.data() + static_cast<int64_t>(row) * kMaxTailKeys;
  const int32_t begin = batch.prefix_blocks[row] * kPageRows;
  // Page by page: on a GPU this is most of what the host does in a step.
  for (int32_t page = begin; page < end; page += kPageRows) {
    std::iota(tail + (page - begin), tail + (std::min(page + kPageRows, end) - begin),
              page_table[page / kPageRows] * kPageRows);
  }
  return end - begin;
}

}  // namespace

int32_t SlotOf(std::span<const int32_t> page_table, int32_t logical_row) {
  return page_table[logical_row / kPageRows] * kPageRows + logical_row % kPageRows;
}

void AppendChunk(std::span<const int32_t> page_table, int32_t first_position, std::span<const TokenId> tokens,
                 StepBatch& batch) {
  const int first = BeginSequence(page_table, tokens.size(), batch);
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    const int32_t position = first_position + i;
    FillRow(first + i, tokens[i], position, i - 1, SlotOf(page_table, position), batch);
    batch.tail_count[first + i] = FillTailByPosition(page_table, first + i, position + 1, batch);
  }
}

void AppendTree(std::span<const int32_t> page_table, int32_t root_position, std::span<const TokenId> token,
                std::span<const int32_t> parent, StepBatch& batch) {
  const int first = BeginSequence(page_table, token.size(), batch);
  for (int i = 0; i < static_cast<int>(token.size()); ++i) {
    const int row = first + i;
    const int32_t position = i == 0 ? root_position : batch.position[first + parent[i]] + 1;
    FillRow(row, token[i], position, parent[i], SlotOf(page_table, root_position + i), batch);
    const int32_t committed = FillTailByPosition(page_table, row, root_position, batch);
    // The node and its ancestors, back to front: the path is in position order like everything before it.
    const int32_t count = committed + position - root_position + 1;
    Check(committed >= 0 && count <= kMaxTailKeys, "all tree rows lie in the tail");
    int32_t* tail = batch.tail_slot.data() + static_cast<int64_t>(row) * kMaxTailKeys;
    int32_t key = count;
    for (int node = i; node >= 0; node = parent[node]) {
      tail[--key] = SlotOf(page_table, root_position + node);
    }
    Check(key == committed, "a node's path has depth + 1 nodes");
    batch.tail_count[row] = count;
    batch.logits_row.push_back(row);
  }
}

}  // namespace arborist::verifier
