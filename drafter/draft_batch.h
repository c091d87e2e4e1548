#pragma once

#include <cstdint>

#include "common/base/ids.h"
#include "common/tensor/view.h"
#include "drafter/model/block_batch.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::drafter {

// All that a round of drafting reads, in one piece of memory.
struct DraftBatch {
  BlockBatch block;
  View1<kernels::TopKParams> top_k;      // [streams]
  View1<kernels::TreeBuildParams> tree;  // [streams]

  static DraftBatch Carve(const DFlashSettings& settings, int64_t streams, int64_t append_rows,
                          Carver& carver) {
    DraftBatch batch;
    batch.block = BlockBatch::Carve(settings, streams, append_rows, carver);
    batch.top_k = {carver.Take<kernels::TopKParams>(streams), streams};
    batch.tree = {carver.Take<kernels::TreeBuildParams>(streams), streams};
    return batch;
  }
};

// All that it leaves behind.
struct DraftedTrees {
  View2<TokenId> token;   // [streams, columns]
  View2<int32_t> parent;  // [streams, columns]
  View2<float> score;     // [streams, columns]
  View1<int32_t> nodes;   // [streams] written, root included
  View1<int32_t> error;   // [streams] as tree_build says it; zero on the CPU

  static DraftedTrees Carve(int64_t streams, int64_t columns, Carver& carver) {
    DraftedTrees trees;
    trees.token = {carver.Take<TokenId>(streams * columns), streams, columns, columns};
    trees.parent = {carver.Take<int32_t>(streams * columns), streams, columns, columns};
    trees.score = {carver.Take<float>(streams * columns), streams, columns, columns};
    trees.nodes = {carver.Take<int32_t>(streams), streams};
    trees.error = {carver.Take<int32_t>(streams), streams};
    return trees;
  }
};

}  // namespace arborist::drafter
