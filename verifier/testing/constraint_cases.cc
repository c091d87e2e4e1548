#include "verifier/testing/constraint_cases.h"

#include <algorithm>

#include "common/base/check.h"

namespace arborist::verifier {

std::shared_ptr<const TokenVocabulary> SmallVocabulary() {
  static const auto* const vocabulary = new std::shared_ptr<const TokenVocabulary>([] {
    std::vector<std::string> bytes;
    for (const char byte : std::string("abcdefghijklmnopqrstuvwxyz0123456789[],: \n\"{}-.")) {
      bytes.emplace_back(1, byte);
    }
    for (const char* text :
         {"ab", "the", "1,", "],", "true", " a", "12", "[[", "cab", "bb", ", ", "\"a\"", "ee", "null"}) {
      bytes.emplace_back(text);
    }
    Check(bytes.size() <= kSmallVocabulary - 2, "two ids have no text");
    bytes.resize(kSmallVocabulary);
    return std::make_shared<const TokenVocabulary>(std::move(bytes));
  }());
  return *vocabulary;
}

std::vector<ConstraintCase> ConstraintCases() {
  const std::vector<TokenId> stop = {kSmallStop};
  std::vector<ConstraintCase> cases = {
      {.name = "WordsUntilAStop", .spec = {.regex = "[a-f]{2,9}( [a-z]{2,5})*", .stop_ids = stop}},
      {.name = "LettersThatEndByThemselves", .spec = {.regex = "[a-z]{40}"}},
      {.name = "JsonUntilAStop",
       .spec = {.json_schema = R"({"type": "array", "items": {"type": "integer"}, "minItems": 8})",
                .stop_ids = stop}},
      {.name = "JsonThatEndsByItself",
       .spec =
           {.json_schema =
                R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "minItems": 6, "maxItems": 9}}, "required": ["a"]})"}},
      {.name = "BadWords", .spec = {.bad_words = {"a", "e1", "bb", "the"}, .stop_ids = stop}},
      {.name = "BadWordsInAForm",
       .spec = {.regex = "[a-d ]+", .bad_words = {"ab", "cc", "d a"}, .stop_ids = stop}},
      {.name = "DeadEnd",
       .spec = {.regex = "[a-e]{12}xyz[a-z]*", .bad_words = {"ba", "yz"}, .stop_ids = stop}},
      {.name = "HeldBack", .spec = {.regex = "[a-z]{3}( [a-z]{3})?", .stop_ids = stop}, .controls = {}}};
  cases.back().controls.min_tokens = 40;
  ConstraintCase all{.name = "WithEverything",
                     .spec = {.regex = "[a-m]+( [a-m]+)*", .bad_words = {"abc", "ee"}, .stop_ids = stop},
                     .controls = {}};
  all.controls.repetition_penalty = 1.4f;
  all.controls.presence_penalty = 0.3f;
  all.controls.frequency_penalty = 0.5f;
  all.controls.logit_bias = {{.token = TokenId{2}, .bias = 2}};
  all.controls.min_tokens = 12;
  all.controls.top_log_probs = 5;
  for (int32_t id = 0; id < kSmallVocabulary; ++id) {
    if (id % 3 != 0 || id == Raw(kSmallStop)) {
      all.controls.allowed_token_ids.push_back(TokenId{id});
    }
  }
  cases.push_back(all);
  return cases;
}

std::shared_ptr<const Constraint> CompileSmall(const ConstraintSpec& spec, int vocabulary) {
  std::vector<std::string> bytes(static_cast<size_t>(vocabulary));
  for (int32_t id = 0; id < std::min(vocabulary, kSmallVocabulary); ++id) {
    bytes[static_cast<size_t>(id)] = SmallVocabulary()->bytes(id);
  }
  auto constraint = Constraint::Compile(spec, std::make_shared<const TokenVocabulary>(std::move(bytes)));
  Check(constraint.ok(), std::string(constraint.status().message()));
  return *constraint;
}

void Constrain(const ConstraintCase& with, OpenArgs& args, int vocabulary) {
  args.controls = with.controls;
  args.controls.min_tokens = std::min(args.controls.min_tokens, args.max_tokens);
  args.stop_ids = with.spec.stop_ids;
  args.constraint = CompileSmall(with.spec, vocabulary);
}

}  // namespace arborist::verifier
