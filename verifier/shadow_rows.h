#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "verifier/step_runner.h"

namespace arborist::verifier {

// One row of a step as its sequence's facts give it: page table, root position, parents. Nothing here comes
// from the batch that the step was marshaled into: a fault of the marshaling must not reach the oracle.
struct ShadowRow {
  int64_t row = 0;  // of the step: trees first, then chunks, each in node order
  int tree = -1;    // -1: of a prompt chunk
  int node = 0;     // in its tree or chunk
  int32_t position = 0;
  // The slots of its keys by position: committed ones, then its ancestors by depth, then its own.
  std::vector<int32_t> key_slot;
};

// Slots of a tree's rows, in node order.
std::vector<int32_t> NodeSlots(const StepTree& tree);

// Index in the step of a tree's first row.
int64_t FirstRowOf(std::span<const StepTree> trees, int tree);

// The most keys of the rows of one step together, so that long contexts take a bounded time and memory (K2:
// 300 MB). The first row is taken whatever it has.
inline constexpr int64_t kMostShadowKeys = 1 << 18;

// Up to `count` distinct rows: the deepest node of tree `focus` (-1: none) first, the others at random.
std::vector<ShadowRow> ChooseRows(std::span<const StepTree> trees, std::span<const StepChunk> chunks,
                                  int focus, int count, std::mt19937_64& random);

}  // namespace arborist::verifier
