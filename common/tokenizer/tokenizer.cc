#include "common/tokenizer/tokenizer.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/json/json.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/stream_decoder.h"
#include "common/tokenizer/tokenizer_json.h"

namespace arborist {
namespace {

std::string HashOf(std::initializer_list<std::string_view> texts) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::string_view text : texts) {
    for (const char c : text) {
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    }
    hash = (hash ^ 0xFFu) * 0x100000001b3u;  // a byte no UTF-8 text has, between the files
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

// bos_token is a text or an added-token object.
absl::StatusOr<std::string> BosText(const JsonObject& config) {
  const auto found = config.fields().fields().find("bos_token");
  if (found != config.fields().fields().end() && found->second.has_struct_value()) {
    ASSIGN_OR_RETURN(const JsonObject token, config.Object("bos_token"));
    return token.String("content");
  }
  return config.String("bos_token");
}

}  // namespace

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& directory) {
  ASSIGN_OR_RETURN(const std::string json, ReadModelFile(directory + "/tokenizer.json", kMaxModelJsonBytes));
  const std::string config_path = directory + "/tokenizer_config.json";
  std::string config;
  if (HasModelFile(config_path)) {
    ASSIGN_OR_RETURN(config, ReadModelFile(config_path, kMaxModelJsonBytes));
  }
  return Parse(json, config, directory);
}

absl::StatusOr<Tokenizer> Tokenizer::Parse(const std::string& json, const std::string& config,
                                           const std::string& place) {
  ASSIGN_OR_RETURN(const JsonObject object, ParseJson(json, place + "/tokenizer.json"));
  ASSIGN_OR_RETURN(const TokenizerSpec spec, ReadTokenizerSpec(object));
  absl::StatusOr<Tokenizer> tokenizer = Build(spec);
  if (!tokenizer.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(place, "/tokenizer.json: ", tokenizer.status().message()));
  }
  RETURN_IF_ERROR(tokenizer->SetBos(spec, config, place));
  tokenizer->hash_ = HashOf({json, config});
  return tokenizer;
}

absl::StatusOr<Tokenizer> Tokenizer::Build(const TokenizerSpec& spec) {
  std::vector<Token> tokens;
  const auto token_at = [&](int32_t id) -> Token& {
    if (id >= static_cast<int32_t>(tokens.size())) {
      tokens.resize(id + 1);
    }
    return tokens[id];
  };
  absl::flat_hash_map<std::string, int32_t> added;
  for (const AddedToken& token : spec.added_tokens) {
    Token& slot = token_at(token.id);
    if (slot.known) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: id ", token.id, " stands twice, expected once"));
    }
    slot = {token.content, true, token.special};
    added.emplace(token.content, token.id);
  }
  Bpe::Tables tables;
  tables.ignore_merges = spec.ignore_merges;
  for (const auto& [text, id] : spec.vocab) {
    const std::optional<std::string> bytes = BytesOfAlphabetText(text);
    Token& slot = token_at(id);
    if (slot.known) {
      if (added.contains(text) && added[text] == id) {
        continue;  // added tokens may be listed in the vocabulary too
      }
      return absl::InvalidArgumentError(absl::StrCat("model.vocab: id ", id, " of \"",
                                                     absl::Utf8SafeCHexEscape(text),
                                                     "\" stands twice, expected one token an id"));
    }
    if (!bytes.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("model.vocab: \"", absl::Utf8SafeCHexEscape(text),
                                                     "\", expected characters of the ",
                                                     "byte-level alphabet"));
    }
    slot = {*bytes, true, false};
    tables.ids.emplace(*bytes, id);
  }
  for (const auto& [left, right] : spec.merges) {
    const std::optional<std::string> left_bytes = BytesOfAlphabetText(left);
    const std::optional<std::string> right_bytes = BytesOfAlphabetText(right);
    if (!left_bytes || !right_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "model.merges[", tables.merges.size(), "]: \"", absl::Utf8SafeCHexEscape(left), "\" \"",
          absl::Utf8SafeCHexEscape(right), "\", expected characters of the byte-level alphabet"));
    }
    tables.merges.emplace_back(*left_bytes, *right_bytes);
  }
  ASSIGN_OR_RETURN(Bpe bpe, Bpe::Create(std::move(tables)));
  ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(spec.normalizer));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec));
  std::vector<AddedToken> sought = spec.added_tokens;
  Normalizer::Run normalize(normalizer);
  for (AddedToken& token : sought) {
    token.sought = token.content;
    if (token.normalized) {
      ASSIGN_OR_RETURN(token.sought, normalize.Apply(token.content));
    }
  }
  Tokenizer out(std::move(bpe), std::move(normalizer), std::move(pre_tokenizer), AddedTokenFinder(sought));
  out.tokens_ = std::move(tokens);
  out.added_ = std::move(added);
  return out;
}

absl::Status Tokenizer::SetBos(const TokenizerSpec& spec, const std::string& config,
                               const std::string& place) {
  std::string text = spec.first_special;
  std::string where = "tokenizer.json: post_processor";
  if (!config.empty()) {
    ASSIGN_OR_RETURN(const JsonObject object, ParseJson(config, place + "/tokenizer_config.json"));
    if (object.Has("add_bos_token")) {
      ASSIGN_OR_RETURN(const bool add, object.Bool("add_bos_token"));
      text.clear();
      if (add) {
        ASSIGN_OR_RETURN(text, BosText(object));
      }
      where = "tokenizer_config.json: bos_token";
    }
  }
  if (text.empty()) {
    return absl::OkStatus();
  }
  bos_ = FindAdded(text);
  if (!bos_.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(place, "/", where, "=", absl::Utf8SafeCHexEscape(text),
                                                   ", expected one of added_tokens in tokenizer.json"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, SpecialText special) const {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid != text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("text has a byte at ", valid, " that is not UTF-8, expected UTF-8"));
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3);
  Normalizer::Run normalize(normalizer_);
  PreTokenizer::Run run(pre_tokenizer_);
  const PreTokenizer::Sink sink = [&](std::string_view piece) { bpe_.Encode(piece, ids); };
  const bool with_special = special == SpecialText::kAsToken;
  std::vector<AddedTokenFinder::Stretch> raw, normalized;
  finder_.SplitRaw(text, with_special, raw);
  for (const auto& stretch : raw) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string_view rewritten, normalize.Apply(stretch.text));
    finder_.SplitNormalized(rewritten, with_special, normalized);
    for (const auto& part : normalized) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        RETURN_IF_ERROR(run.Split(part.text, sink));
      }
    }
  }
  std::vector<TokenId> out(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    out[i] = TokenId{ids[i]};
  }
  return out;
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::EncodePrompt(std::string_view text) const {
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, Encode(text, SpecialText::kAsToken));
  if (bos_.has_value()) {
    ids.insert(ids.begin(), *bos_);
  }
  return ids;
}

bool Tokenizer::IsKnown(TokenId id) const {
  return Raw(id) >= 0 && Raw(id) < size() && tokens_[Raw(id)].known;
}

bool Tokenizer::IsSpecial(TokenId id) const { return IsKnown(id) && tokens_[Raw(id)].special; }

std::string_view Tokenizer::Bytes(TokenId id) const {
  return IsKnown(id) ? std::string_view(tokens_[Raw(id)].bytes) : std::string_view();
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special || !IsSpecial(id)) {
      bytes += Bytes(id);
    }
  }
  StreamDecoder decoder;
  std::string text = decoder.Append(bytes);
  text += decoder.Flush();
  return text;
}

std::optional<TokenId> Tokenizer::FindAdded(std::string_view content) const {
  const auto found = added_.find(std::string(content));
  return found == added_.end() ? std::nullopt : std::optional<TokenId>(TokenId{found->second});
}

}  // namespace arborist
