#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/grammar/token_vocabulary.h"

namespace arborist {

struct LoadedVocabulary {
  std::shared_ptr<const TokenVocabulary> vocabulary;  // null: there is none
  std::string note;                                   // for people: what it is, or why there is none
};

// The tokenizer of `directory`; if that is empty, of `model` if it has one that can be read. As many ids as
// the model has (`ids`; 0: as the tokenizer has), those beyond the tokenizer's without text. An error only
// for a `directory` that was named.
absl::StatusOr<LoadedVocabulary> LoadVocabulary(const std::string& directory, const std::string& model,
                                                int32_t ids);

}  // namespace arborist
