#include "verifier/step_runner.h"

#include "verifier/batch_builder.h"

namespace arborist::verifier {

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
