// From what a request asks for to a constraint.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/grammar/constraint.h"
#include "common/grammar/json_schema.h"
#include "common/grammar/regex.h"

namespace arborist {
namespace {

absl::StatusOr<std::optional<ByteAutomaton>> CompileGrammar(const ConstraintSpec& spec,
                                                            const TokenVocabulary& vocabulary) {
  if (spec.json_schema.empty() && spec.regex.empty()) {
    return std::nullopt;
  }
  if (!spec.json_schema.empty() && !spec.regex.empty()) {
    return absl::InvalidArgumentError("regex: stands beside json_schema, expected one of them");
  }
  const std::string what = spec.regex.empty() ? "json_schema" : "regex";
  ByteGrammar grammar;
  if (spec.regex.empty()) {
    RETURN_IF_ERROR(AddJsonSchema(grammar, spec.json_schema));
  } else {
    const int32_t rule = grammar.DeclareRule();
    ASSIGN_OR_RETURN(const ByteGrammar::Part body,
                     AddRegex(grammar, spec.regex, RegexMatch::kWhole, TextEncoding::kUtf8));
    grammar.Define(rule, body);
    grammar.set_root(rule);
  }
  ASSIGN_OR_RETURN(TrimmedGrammar trimmed, TrimmedGrammar::Create(std::move(grammar), what));
  for (int byte = 0; byte < 256; ++byte) {
    if (trimmed.UsesByte(static_cast<uint8_t>(byte)) && !vocabulary.HasByte(static_cast<uint8_t>(byte))) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: needs byte 0x%02x, but no token of the vocabulary is just that byte", what, byte));
    }
  }
  return std::optional<ByteAutomaton>(std::in_place, std::move(trimmed));
}

std::string FieldOf(const ConstraintSpec& spec) {
  return !spec.regex.empty() ? "regex" : !spec.json_schema.empty() ? "json_schema" : "bad_words";
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Constraint>> Constraint::Compile(
    const ConstraintSpec& spec, std::shared_ptr<const TokenVocabulary> vocabulary,
    std::shared_ptr<ConstraintMemory> memory) {
  Parts parts;
  ASSIGN_OR_RETURN(parts.forbidden, ForbiddenStrings::Create(spec.bad_words));
  ASSIGN_OR_RETURN(parts.grammar, CompileGrammar(spec, *vocabulary));
  parts.field = FieldOf(spec);
  if (parts.grammar.has_value() && parts.grammar->exhausted()) {
    return absl::InvalidArgumentError(absl::StrCat(
        parts.field, ": too much work for one token, expected fewer alternatives that begin alike"));
  }
  parts.stop_ids = spec.stop_ids;
  std::sort(parts.stop_ids.begin(), parts.stop_ids.end());
  parts.bytes = parts.forbidden.bytes() + (parts.grammar.has_value() ? parts.grammar->grammar_bytes() : 0);
  if (!memory->Join(parts.bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("constraints in use take ", memory->compiled(),
                                                     " bytes, which leaves no room for one of ",
                                                     parts.bytes));
  }
  return std::shared_ptr<const Constraint>(
      new Constraint(std::move(parts), std::move(vocabulary), std::move(memory)));
}

}  // namespace arborist
