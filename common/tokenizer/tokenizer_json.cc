#include "common/tokenizer/tokenizer_json.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

using google::protobuf::Value;

// What ByteLevel splits by when its use_regex is set.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr int64_t kMaxTokenId = (int64_t{1} << 24) - 1;

// The objects of a list of objects.
absl::StatusOr<std::vector<JsonObject>> Objects(const JsonObject& json, const std::string& key) {
  const auto found = json.fields().fields().find(key);
  if (found == json.fields().fields().end() || !found->second.has_list_value()) {
    return json.Unexpected(key, "a list of objects");
  }
  std::vector<JsonObject> out;
  for (const Value& value : found->second.list_value().values()) {
    if (!value.has_struct_value()) {
      return json.Unexpected(key, "a list of objects");
    }
    out.emplace_back(value.struct_value(), absl::StrCat(json.place(), ": ", key, "[", out.size(), "]"));
  }
  return out;
}

absl::Status ReadPattern(const JsonObject& json, std::string& pattern, bool& literal) {
  ASSIGN_OR_RETURN(const JsonObject object, json.Object("pattern"));
  literal = object.Has("String");
  ASSIGN_OR_RETURN(pattern, object.String(literal ? "String" : "Regex"));
  if (pattern.empty()) {
    return json.Unexpected("pattern", "a pattern that is not empty");
  }
  return absl::OkStatus();
}

absl::StatusOr<SplitStep> ReadSplit(const JsonObject& json) {
  SplitStep step;
  RETURN_IF_ERROR(ReadPattern(json, step.pattern, step.literal));
  ASSIGN_OR_RETURN(step.invert, json.BoolOr("invert", false));
  ASSIGN_OR_RETURN(const std::string behavior, json.String("behavior"));
  using Behavior = SplitStep::Behavior;
  const std::pair<const char*, Behavior> names[] = {{"Isolated", Behavior::kIsolated},
                                                    {"Removed", Behavior::kRemoved},
                                                    {"MergedWithPrevious", Behavior::kMergedWithPrevious},
                                                    {"MergedWithNext", Behavior::kMergedWithNext},
                                                    {"Contiguous", Behavior::kContiguous}};
  for (const auto& [name, value] : names) {
    if (behavior == name) {
      step.behavior = value;
      return step;
    }
  }
  return json.Unexpected("behavior", "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous");
}

absl::Status ReadPreTokenizer(const JsonObject& json, bool& byte_level, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::string type, json.String("type"));
  if (byte_level) {
    return json.Unexpected("type", "nothing after ByteLevel");
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonObject> steps, Objects(json, "pretokenizers"));
    for (const JsonObject& step : steps) {
      RETURN_IF_ERROR(ReadPreTokenizer(step, byte_level, spec));
    }
    return absl::OkStatus();
  }
  if (type == "Split") {
    ASSIGN_OR_RETURN(SplitStep step, ReadSplit(json));
    spec.before_prefix.push_back(std::move(step));
    return absl::OkStatus();
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, json.BoolOr("individual_digits", false));
    SplitStep step;
    step.pattern = "\\p{N}";
    step.behavior = individual ? SplitStep::Behavior::kIsolated : SplitStep::Behavior::kContiguous;
    spec.before_prefix.push_back(std::move(step));
    return absl::OkStatus();
  }
  if (type == "ByteLevel") {
    byte_level = true;
    ASSIGN_OR_RETURN(spec.add_prefix_space, json.BoolOr("add_prefix_space", true));
    ASSIGN_OR_RETURN(const bool use_regex, json.BoolOr("use_regex", true));
    if (use_regex) {
      SplitStep step;
      step.pattern = kByteLevelPattern;
      spec.after_prefix.push_back(std::move(step));
    }
    return absl::OkStatus();
  }
  return json.Unexpected("type", "Sequence, Split, Digits or ByteLevel");
}

absl::Status ReadMerges(const JsonObject& model, TokenizerSpec& spec) {
  const auto found = model.fields().fields().find("merges");
  if (found == model.fields().fields().end() || !found->second.has_list_value()) {
    return model.Unexpected("merges", "a list");
  }
  for (const Value& value : found->second.list_value().values()) {
    std::string left, right;
    if (value.has_string_value()) {  // the older form: "left right"
      const std::string& both = value.string_value();
      const size_t space = both.find(' ');
      left = both.substr(0, space);
      right = space == std::string::npos ? "" : both.substr(space + 1);
    } else if (value.has_list_value() && value.list_value().values_size() == 2) {
      left = value.list_value().values(0).string_value();
      right = value.list_value().values(1).string_value();
    }
    if (left.empty() || right.empty()) {
      const std::string key = absl::StrCat("merges[", spec.merges.size(), "]");
      google::protobuf::Struct merge;
      (*merge.mutable_fields())[key] = value;
      return JsonObject(std::move(merge), model.place()).Unexpected(key, "two token parts");
    }
    spec.merges.emplace_back(std::move(left), std::move(right));
  }
  return absl::OkStatus();
}

absl::Status ReadVocab(const JsonObject& model, TokenizerSpec& spec) {
  const auto found = model.fields().fields().find("vocab");
  if (found == model.fields().fields().end() || !found->second.has_struct_value()) {
    return model.Unexpected("vocab", "an object of token to id");
  }
  const auto& vocab = found->second.struct_value().fields();
  spec.vocab.reserve(vocab.size());
  for (const auto& [token, value] : vocab) {
    const double id = value.number_value();
    if (!value.has_number_value() || !(id >= 0) || id > kMaxTokenId || id != static_cast<int32_t>(id)) {
      return JsonObject(found->second.struct_value(), absl::StrCat(model.place(), ": vocab"))
          .Unexpected(token, absl::StrCat("an integer in [0, ", kMaxTokenId, "]"));
    }
    spec.vocab.emplace_back(token, static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const JsonObject& json, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const JsonObject model, json.Object("model"));
  ASSIGN_OR_RETURN(const std::string type, model.StringOr("type", "BPE"));
  if (type != "BPE") {
    return model.Unexpected("type", "BPE");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "unk_token"}) {
    ASSIGN_OR_RETURN(const std::string text, model.StringOr(key, ""));
    if (!text.empty()) {
      return model.Unexpected(key, "null");
    }
  }
  ASSIGN_OR_RETURN(const double dropout, model.NumberOr("dropout", 0));
  if (dropout != 0) {
    return model.Unexpected("dropout", "null");
  }
  ASSIGN_OR_RETURN(const bool byte_fallback, model.BoolOr("byte_fallback", false));
  if (byte_fallback) {
    return model.Unexpected("byte_fallback", "false (byte-level BPE needs none)");
  }
  ASSIGN_OR_RETURN(spec.ignore_merges, model.BoolOr("ignore_merges", false));
  RETURN_IF_ERROR(ReadVocab(model, spec));
  return ReadMerges(model, spec);
}

absl::Status ReadAddedTokens(const JsonObject& json, TokenizerSpec& spec) {
  if (!json.Has("added_tokens")) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<JsonObject> tokens, Objects(json, "added_tokens"));
  for (const JsonObject& entry : tokens) {
    AddedToken token;
    ASSIGN_OR_RETURN(const int64_t id, entry.Int("id"));
    if (id < 0 || id > kMaxTokenId) {
      return entry.Unexpected("id", absl::StrCat("an integer in [0, ", kMaxTokenId, "]"));
    }
    token.id = static_cast<int32_t>(id);
    ASSIGN_OR_RETURN(token.content, entry.String("content"));
    if (token.content.empty()) {
      return entry.Unexpected("content", "text that is not empty");
    }
    ASSIGN_OR_RETURN(token.special, entry.BoolOr("special", false));
    ASSIGN_OR_RETURN(token.lstrip, entry.BoolOr("lstrip", false));
    ASSIGN_OR_RETURN(token.rstrip, entry.BoolOr("rstrip", false));
    ASSIGN_OR_RETURN(token.normalized, entry.BoolOr("normalized", !token.special));
    ASSIGN_OR_RETURN(const bool single_word, entry.BoolOr("single_word", false));
    if (single_word) {
      return entry.Unexpected("single_word", "false");
    }
    spec.added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// The only thing of a post-processor that changes ids of one text: special tokens around it.
absl::Status ReadPostProcessor(const JsonObject& json, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::string type, json.String("type"));
  if (type == "ByteLevel") {
    return absl::OkStatus();  // offsets only
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonObject> parts, Objects(json, "processors"));
    for (const JsonObject& part : parts) {
      RETURN_IF_ERROR(ReadPostProcessor(part, spec));
    }
    return absl::OkStatus();
  }
  if (type != "TemplateProcessing") {
    return json.Unexpected("type", "ByteLevel, TemplateProcessing or Sequence");
  }
  ASSIGN_OR_RETURN(const std::vector<JsonObject> single, Objects(json, "single"));
  bool before_text = true;
  for (const JsonObject& part : single) {
    if (part.Has("Sequence")) {
      before_text = false;
      continue;
    }
    ASSIGN_OR_RETURN(const JsonObject special, part.Object("SpecialToken"));
    ASSIGN_OR_RETURN(const std::string name, special.String("id"));
    if (!before_text || !spec.first_special.empty()) {
      return special.Unexpected("id", "one special token before the text and none after it");
    }
    spec.first_special = name;
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizer(const JsonObject& json, TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const std::string type, json.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonObject> steps, Objects(json, "normalizers"));
    for (const JsonObject& step : steps) {
      RETURN_IF_ERROR(ReadNormalizer(step, spec));
    }
    return absl::OkStatus();
  }
  using Kind = NormalizerStep::Kind;
  const std::pair<const char*, Kind> names[] = {{"NFC", Kind::kNfc},
                                                {"NFD", Kind::kNfd},
                                                {"NFKC", Kind::kNfkc},
                                                {"NFKD", Kind::kNfkd},
                                                {"Lowercase", Kind::kLowercase},
                                                {"Replace", Kind::kReplace},
                                                {"Prepend", Kind::kPrepend},
                                                {"Strip", Kind::kStrip}};
  for (const auto& [name, kind] : names) {
    if (type != name) {
      continue;
    }
    NormalizerStep step;
    step.kind = kind;
    if (kind == Kind::kReplace) {
      RETURN_IF_ERROR(ReadPattern(json, step.pattern, step.literal));
      ASSIGN_OR_RETURN(step.content, json.String("content"));
    } else if (kind == Kind::kPrepend) {
      ASSIGN_OR_RETURN(step.content, json.String("prepend"));
    } else if (kind == Kind::kStrip) {
      ASSIGN_OR_RETURN(step.left, json.BoolOr("strip_left", true));
      ASSIGN_OR_RETURN(step.right, json.BoolOr("strip_right", true));
    }
    spec.normalizer.push_back(std::move(step));
    return absl::OkStatus();
  }
  return json.Unexpected("type", "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend or Strip");
}

}  // namespace

absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const JsonObject& json) {
  TokenizerSpec spec;
  if (json.Has("normalizer")) {
    ASSIGN_OR_RETURN(const JsonObject normalizer, json.Object("normalizer"));
    RETURN_IF_ERROR(ReadNormalizer(normalizer, spec));
  }
  bool byte_level = false;
  if (json.Has("pre_tokenizer")) {
    ASSIGN_OR_RETURN(const JsonObject pre_tokenizer, json.Object("pre_tokenizer"));
    RETURN_IF_ERROR(ReadPreTokenizer(pre_tokenizer, byte_level, spec));
  }
  if (!byte_level) {
    return json.Unexpected("pre_tokenizer", "ByteLevel as its last step");
  }
  if (json.Has("decoder")) {
    ASSIGN_OR_RETURN(const JsonObject decoder, json.Object("decoder"));
    ASSIGN_OR_RETURN(const std::string type, decoder.String("type"));
    if (type != "ByteLevel") {
      return decoder.Unexpected("type", "ByteLevel");
    }
  }
  if (json.Has("post_processor")) {
    ASSIGN_OR_RETURN(const JsonObject post_processor, json.Object("post_processor"));
    RETURN_IF_ERROR(ReadPostProcessor(post_processor, spec));
  }
  RETURN_IF_ERROR(ReadModel(json, spec));
  RETURN_IF_ERROR(ReadAddedTokens(json, spec));
  return spec;
}

}  // namespace arborist
