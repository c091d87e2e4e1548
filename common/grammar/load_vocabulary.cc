#include "common/grammar/load_vocabulary.h"

#include <chrono>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace arborist {

absl::StatusOr<LoadedVocabulary> LoadVocabulary(const std::string& directory, const std::string& model,
                                                int32_t ids) {
  const std::string& from = directory.empty() ? model : directory;
  std::error_code ignored;
  if (directory.empty() &&
      (model.empty() || !std::filesystem::exists(std::filesystem::path(model) / "tokenizer.json", ignored))) {
    return LoadedVocabulary{.vocabulary = nullptr, .note = "no tokenizer"};
  }
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Load(from);
  if (!tokenizer.ok() && !directory.empty()) {
    return absl::Status(tokenizer.status().code(), absl::StrCat("tokenizer: ", tokenizer.status().message()));
  }
  if (!tokenizer.ok()) {
    return LoadedVocabulary{.vocabulary = nullptr, .note = std::string(tokenizer.status().message())};
  }
  LoadedVocabulary loaded;
  loaded.vocabulary = TokenVocabulary::FromTokenizer(*tokenizer, ids > 0 ? ids : tokenizer->size());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  loaded.note = absl::StrFormat("tokenizer of %s, %d ids, %.1f MB, %.0f ms", from, loaded.vocabulary->size(),
                                static_cast<double>(loaded.vocabulary->bytes()) * 1e-6, took.count() * 1e3);
  return loaded;
}

}  // namespace arborist
