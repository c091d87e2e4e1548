// tokenizer.json, and byte-pair encoding by tables. Input, by its first byte: even: tokenizer.json, 0xFF,
// tokenizer_config.json, 0xFF, a text; the 256 tokens of single bytes that each tokenizer must have are put
// in after `"vocab":{`. Odd: merges over a few letters, then a piece of text.
#include <optional>

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/grammar/token_vocabulary.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/tokenizer_json.h"
#include "tests/fuzz/byte_vocabulary.h"
#include "tests/fuzz/fuzz_input.h"

namespace arborist {
namespace {

std::string WithByteTokens(std::string_view json) {
  static const std::string entries = fuzz::ByteVocabularyEntries();
  const std::string_view mark = "\"vocab\":{";
  const size_t at = json.find(mark);
  std::string out(json);
  if (at != std::string_view::npos) {
    const size_t after = at + mark.size();
    out.insert(after, entries + (after < json.size() && json[after] == '}' ? "" : ","));
  }
  return out;
}

// Whether the ids' bytes are the text: nothing is rewritten, added or taken away.
bool KeepsText(const TokenizerSpec& spec) {
  const auto keeps = [](const SplitStep& step) { return step.behavior != SplitStep::Behavior::kRemoved; };
  return spec.normalizer.empty() && !spec.add_prefix_space &&
         std::all_of(spec.before_prefix.begin(), spec.before_prefix.end(), keeps) &&
         std::all_of(spec.after_prefix.begin(), spec.after_prefix.end(), keeps) &&
         std::none_of(spec.added_tokens.begin(), spec.added_tokens.end(),
                      [](const AddedToken& token) { return token.lstrip || token.rstrip; });
}

void CheckText(const Tokenizer& tokenizer, bool keeps_text, std::string_view text, SpecialText special) {
  const absl::StatusOr<std::vector<TokenId>> ids = tokenizer.Encode(text, special);
  if (!ids.ok()) {
    Check(ValidUtf8Prefix(text) != text.size() || ids.status().code() != absl::StatusCode::kInvalidArgument,
          "UTF-8 is encoded");
    return;
  }
  Check(ValidUtf8Prefix(text) == text.size(), "only UTF-8 is encoded");
  std::string bytes;
  for (const TokenId id : *ids) {
    Check(tokenizer.IsKnown(id), "ids of the vocabulary");
    Check(special == SpecialText::kAsToken || !tokenizer.IsSpecial(id), "text forges no mark");
    bytes += tokenizer.Bytes(id);
  }
  const std::string decoded = tokenizer.Decode(*ids, false);
  Check(ValidUtf8Prefix(decoded) == decoded.size(), "decoded text is UTF-8");
  if (keeps_text) {
    Check(bytes == text && decoded == text, "encoding and decoding loses nothing");
  }
}

void CheckTokenizer(fuzz::FuzzInput input) {
  const std::string json = WithByteTokens(input.Until('\xFF'));
  const std::string config(input.Until('\xFF'));
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Parse(json, config, "fuzz");
  if (!tokenizer.ok()) {
    Check(!tokenizer.status().message().empty(), "a refusal says why");
    return;
  }
  const absl::StatusOr<TokenizerSpec> spec = ReadTokenizerSpec(*ParseJson(json, "fuzz"));
  Check(spec.ok(), "what was read once is read again");
  const bool keeps_text = KeepsText(*spec);
  CheckText(*tokenizer, keeps_text, input.rest(), SpecialText::kAsToken);
  CheckText(*tokenizer, keeps_text, input.rest(), SpecialText::kAsText);
  const auto prompt = tokenizer->EncodePrompt(input.rest());
  if (prompt.ok() && tokenizer->bos().has_value()) {
    Check(!prompt->empty() && prompt->front() == *tokenizer->bos() && tokenizer->IsKnown(*tokenizer->bos()),
          "a prompt begins with the first token");
  }
  if (tokenizer->size() <= 4096) {
    const auto vocabulary = TokenVocabulary::FromTokenizer(*tokenizer, tokenizer->size() + 3);
    for (int32_t id = 0; id < vocabulary->size(); ++id) {
      const std::string_view bytes = tokenizer->IsSpecial(TokenId{id}) ? "" : tokenizer->Bytes(TokenId{id});
      Check(vocabulary->bytes(id) == bytes, "the grammar sees the tokens' bytes");
    }
  }
}

// Joins the pair of least rank, the leftmost of them, again and again.
std::vector<std::string> JoinOneByOne(const std::vector<std::pair<std::string, std::string>>& merges,
                                      std::string_view piece) {
  std::vector<std::string> parts;
  for (const char byte : piece) {
    parts.emplace_back(1, byte);
  }
  for (;;) {
    size_t best = parts.size(), best_rank = merges.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) {
          best = i;
          best_rank = rank;
        }
      }
    }
    if (best == parts.size()) {
      return parts;
    }
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

void CheckMerges(fuzz::FuzzInput input) {
  Bpe::Tables tables;
  tables.ignore_merges = input.Below(8) == 7;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
    tables.ids.emplace(tokens.back(), byte);
  }
  std::vector<std::string> known = {"a", "b", "c"};
  for (size_t count = input.Below(24); count > 0; --count) {
    const std::string left = known[input.Below(known.size())], right = known[input.Below(known.size())];
    if (std::find(tables.merges.begin(), tables.merges.end(), std::pair(left, right)) !=
        tables.merges.end()) {
      continue;
    }
    tables.merges.emplace_back(left, right);
    if (tables.ids.emplace(left + right, static_cast<int32_t>(tokens.size())).second) {
      tokens.push_back(left + right);
      known.push_back(left + right);
    }
  }
  std::string piece(input.rest().substr(0, 600));
  for (char& byte : piece) {
    byte = static_cast<char>('a' + static_cast<uint8_t>(byte) % 3);
  }
  std::vector<std::string> expected = JoinOneByOne(tables.merges, piece);
  if (tables.ignore_merges && tables.ids.contains(piece)) {
    expected = {piece};
  }
  const absl::StatusOr<Bpe> bpe = Bpe::Create(std::move(tables));
  Check(bpe.ok(), "whole tables are taken");
  std::vector<int32_t> ids;
  bpe->Encode(piece, ids);
  std::vector<std::string> parts;
  for (const int32_t id : ids) {
    parts.push_back(tokens.at(id));
  }
  Check(parts == expected, "pairs are joined in the order of their ranks");
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  fuzz::FuzzInput input(data, size);
  if (input.Below(2) == 0) {
    CheckTokenizer(input);
  } else {
    CheckMerges(input);
  }
  return 0;
}
