#include "drafter/model/scratch.h"

#include <algorithm>

namespace arborist::drafter {

Scratch::Scratch(const DFlashSettings& settings) {
  const size_t block = settings.block;
  const size_t rows = std::max<size_t>(block, kContextChunk);
  token.resize(block);
  position.resize(rows);
  context_begin.resize(block);
  block_begin.resize(block);
  block_end.resize(block);
  residual.resize(block * settings.hidden);
  normed.resize(rows * settings.hidden);
  added.resize(block * settings.hidden);
  query.resize(block * settings.query_width());
  key.resize(block * settings.kv_width());
  value.resize(block * settings.kv_width());
  attention.resize(block * settings.query_width());
  gate.resize(block * settings.intermediate);
  up.resize(block * settings.intermediate);
  logits.resize((block - 1) * settings.vocabulary);
}

}  // namespace arborist::drafter
