#include "verifier/step_runner.h"

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
    AppendChunk(chunk.page_table, chunk.first_position, chunk.tokens, batch);
  }
}

}  // namespace arborist::verifier
