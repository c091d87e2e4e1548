#include "verifier/step_runner.h"

#include "common/base/check.h"
#include "verifier/batch_builder.h"
#include "verifier/shadow_verifier.h"

namespace arborist::verifier {

bool StepRunner::BeginShadow(std::span<const StepTree> trees, std::span<const StepChunk> chunks) {
  shadowed_ = shadow_ != nullptr && shadow_->Begin(trees, chunks);
  return shadowed_;
}

void FillStep(std::span<const StepTree> trees, std::span<const StepChunk> chunks, StepBatch& batch) {
  batch.Clear();
  for (const StepTree& tree : trees) {
    AppendTree(tree.page_table, tree.root_position, tree.token, tree.parent, batch);
  }
  for (const StepChunk& chunk : chunks) {
    const int first = batch.rows;
    AppendChunk(chunk.page_table, chunk.first_position, chunk.tokens, batch);
    if (!chunk.next.empty()) {
      Check(chunk.next.size() == chunk.tokens.size(), "every token of a scored chunk has a next one, or -1");
      Check(static_cast<int>(batch.logits_row.size()) == first, "scored chunks come before the others");
      for (int row = first; row < batch.rows; ++row) {
        batch.logits_row.push_back(row);
      }
    }
  }
}

}  // namespace arborist::verifier
