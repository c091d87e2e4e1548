#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// What a request gets where it says nothing.
struct GenerationDefaults {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  std::vector<TokenId> eos_ids;
  Mode mode = Mode::kAuto;
  int32_t tree_nodes = 16;
  int32_t max_tokens = 0;  // 0: the context limit
};

// The sampling defaults and end-of-sequence ids of a model directory: generation_config.json if it is there,
// the ids else from config.json (or its text_config). As in Hugging Face transformers, a temperature that is
// not given is 1 with do_sample and greedy without it. InvalidArgument names a value out of its bounds or a
// key whose meaning we lack.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& directory);

}  // namespace arborist::coordinator
