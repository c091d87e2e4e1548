#include "verifier/shadow_rows.h"

#include <algorithm>
#include <utility>

namespace arborist::verifier {
namespace {

constexpr int32_t kRowsOfPage = 64;

// Written out again on purpose: the step's own SlotOf is among what is compared.
int32_t Slot(std::span<const int32_t> page_table, int32_t logical_row) {
  return page_table[logical_row / kRowsOfPage] * kRowsOfPage + logical_row % kRowsOfPage;
}

int32_t Depth(const StepTree& tree, int node) {
  int32_t depth = 0;
  for (; tree.parent[node] >= 0; node = tree.parent[node]) {
    ++depth;
  }
  return depth;
}

ShadowRow TreeRow(const StepTree& tree, int node) {
  ShadowRow row;
  row.node = node;
  row.position = tree.root_position + Depth(tree, node);
  row.key_slot.resize(static_cast<size_t>(row.position) + 1);
  for (int32_t position = 0; position < tree.root_position; ++position) {
    row.key_slot[position] = Slot(tree.page_table, position);
  }
  for (int32_t position = row.position; position >= tree.root_position; --position) {
    row.key_slot[position] = Slot(tree.page_table, tree.root_position + node);
    node = tree.parent[node];
  }
  return row;
}

ShadowRow ChunkRow(const StepChunk& chunk, int token) {
  ShadowRow row;
  row.node = token;
  row.position = chunk.first_position + token;
  for (int32_t position = 0; position <= row.position; ++position) {
    row.key_slot.push_back(Slot(chunk.page_table, position));
  }
  return row;
}

ShadowRow RowOf(std::span<const StepTree> trees, std::span<const StepChunk> chunks, int64_t step_row) {
  int64_t left = step_row;
  ShadowRow row;
  for (size_t i = 0; i < trees.size() + chunks.size(); ++i) {
    const bool is_tree = i < trees.size();
    const auto rows =
        static_cast<int64_t>(is_tree ? trees[i].token.size() : chunks[i - trees.size()].tokens.size());
    if (left < rows) {
      row = is_tree ? TreeRow(trees[i], static_cast<int>(left))
                    : ChunkRow(chunks[i - trees.size()], static_cast<int>(left));
      row.tree = is_tree ? static_cast<int>(i) : -1;
      break;
    }
    left -= rows;
  }
  row.row = step_row;
  return row;
}

}  // namespace

std::vector<int32_t> NodeSlots(const StepTree& tree) {
  std::vector<int32_t> slots;
  for (int32_t node = 0; node < static_cast<int32_t>(tree.token.size()); ++node) {
    slots.push_back(Slot(tree.page_table, tree.root_position + node));
  }
  return slots;
}

int64_t FirstRowOf(std::span<const StepTree> trees, int tree) {
  int64_t row = 0;
  for (const StepTree& before : trees.first(static_cast<size_t>(tree))) {
    row += static_cast<int64_t>(before.token.size());
  }
  return row;
}

std::vector<ShadowRow> ChooseRows(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                                  int focus, int count, std::mt19937_64& random) {
  int64_t rows = FirstRowOf(trees, static_cast<int>(trees.size()));
  for (const StepChunk& chunk : chunks) {
    rows += static_cast<int64_t>(chunk.tokens.size());
  }
  std::vector<int64_t> chosen;
  if (focus >= 0) {
    const StepTree& tree = trees[focus];
    int deepest = 0;
    for (int node = 1; node < static_cast<int>(tree.token.size()); ++node) {
      deepest = Depth(tree, node) > Depth(tree, deepest) ? node : deepest;
    }
    chosen.push_back(FirstRowOf(trees, focus) + deepest);
  }
  while (static_cast<int64_t>(chosen.size()) < std::min<int64_t>(count, rows)) {
    const int64_t row = std::uniform_int_distribution<int64_t>(0, rows - 1)(random);
    if (std::find(chosen.begin(), chosen.end(), row) == chosen.end()) {
      chosen.push_back(row);
    }
  }
  std::vector<ShadowRow> out;
  int64_t keys = 0;
  for (const int64_t row : chosen) {
    ShadowRow next = RowOf(trees, chunks, row);
    keys += static_cast<int64_t>(next.key_slot.size());
    if (!out.empty() && keys > kMostShadowKeys) {
      break;
    }
    out.push_back(std::move(next));
  }
  return out;
}

}  // namespace arborist::verifier
