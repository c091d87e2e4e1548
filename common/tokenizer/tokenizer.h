#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pre_tokenizer.h"

namespace arborist {

// What a special token's own text becomes when it stands in the input.
enum class SpecialText : uint8_t {
  kAsToken,  // the token, as Hugging Face tokenizers do
  kAsText,   // ordinary text: a user's words cannot forge marks of the format
};

// Text to ids and back by a Hugging Face tokenizer.json (byte-level BPE). Immutable, shared by threads.
class Tokenizer {
 public:
  // Reads tokenizer.json and, if it is there, tokenizer_config.json. InvalidArgument names what is not
  // supported.
  static absl::StatusOr<Tokenizer> Load(const std::string& directory);

  // Both texts as JSON; `config` may be empty.
  static absl::StatusOr<Tokenizer> Parse(const std::string& json, const std::string& config,
                                         const std::string& place);

  // The ids of `text` alone. InvalidArgument if it is not UTF-8.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, SpecialText special) const;

  // What the model is given for a plain text prompt: bos() if there is one, then Encode(text, kAsToken).
  absl::StatusOr<std::vector<TokenId>> EncodePrompt(std::string_view text) const;

  // The exact bytes of a token; empty for an id that stands for nothing (padding rows of the embedding).
  std::string_view Bytes(TokenId id) const;
  bool IsKnown(TokenId id) const;
  bool IsSpecial(TokenId id) const;

  // Concatenated bytes with broken UTF-8 as U+FFFD. `skip_special` leaves special tokens out.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  // The added token with this text.
  std::optional<TokenId> FindAdded(std::string_view content) const;

  // The token before every text prompt: bos_token if tokenizer_config.json says add_bos_token = true, none if
  // it says false; if it says nothing, the one that the post_processor of tokenizer.json puts first.
  std::optional<TokenId> bos() const { return bos_; }

  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // largest id + 1
  const std::string& hash() const { return hash_; }  // 16 hexadecimal digits over both files

 private:
  struct Token {
    std::string bytes;
    bool known = false;
    bool special = false;
  };

  Tokenizer(Bpe bpe, Normalizer normalizer, PreTokenizer pre_tokenizer, AddedTokenFinder finder)
      : bpe_(std::move(bpe)),
        normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        finder_(std::move(finder)) {}
  static absl::StatusOr<Tokenizer> Build(const TokenizerSpec& spec);
  absl::Status SetBos(const TokenizerSpec& spec, const std::string& config, const std::string& place);

  Bpe bpe_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  AddedTokenFinder finder_;
  std::vector<Token> tokens_;  // by id
  absl::flat_hash_map<std::string, int32_t> added_;
  std::optional<TokenId> bos_;
  std::string hash_;
};

}  // namespace arborist
