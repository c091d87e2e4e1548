#include "common/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

constexpr size_t kStackMinBytes = 32 << 10;
constexpr size_t kStackMaxBytes = 16 << 20;
constexpr uint32_t kHeapMaxKiB = 512 << 10;

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

pcre2_code* Code(void* code) { return static_cast<pcre2_code*>(code); }

struct MatcherState {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;

  ~MatcherState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

// Backtracking over one run is linear in it; more than that is a pattern gone wrong.
uint32_t MatchLimit(size_t text_bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(UINT32_MAX, 10'000'000 + uint64_t{64} * text_bytes));
}

}  // namespace

absl::StatusOr<Pattern> Pattern::Compile(std::string_view pattern, bool literal) {
  std::string source(pattern);
  uint32_t options = PCRE2_UTF | PCRE2_LITERAL;
  if (!literal) {
    ASSIGN_OR_RETURN(source, TranslatePattern(pattern));
    options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
  }
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options,
                                   &error, &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("pattern=", std::string(pattern), ", expected a regular ",
                                                   "expression: ", ErrorText(error), " at byte ", offset));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT the interpreter gives the same matches
  return Pattern(code);
}

void Pattern::Free::operator()(void* code) const { pcre2_code_free(Code(code)); }

void Matcher::Free::operator()(void* state) const { delete static_cast<MatcherState*>(state); }

Matcher::Matcher(const Pattern& pattern) : pattern_(&pattern) {
  auto* state = new MatcherState;
  state_.reset(state);
  state->data = pcre2_match_data_create_from_pattern(Code(pattern.code_.get()), nullptr);
  state->context = pcre2_match_context_create(nullptr);
  Check(state->data != nullptr && state->context != nullptr, "out of memory for a pattern");
  pcre2_set_heap_limit(state->context, kHeapMaxKiB);
}

absl::StatusOr<bool> Matcher::FindFrom(std::string_view text, size_t start, ByteRange& match) {
  auto* state = static_cast<MatcherState*>(state_.get());
  pcre2_set_match_limit(state->context, MatchLimit(text.size()));
  const auto run = [&](uint32_t options) {
    return pcre2_match(Code(pattern_->code_.get()), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                       start, PCRE2_NO_UTF_CHECK | options, state->data, state->context);
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT && state->stack == nullptr) {
    // The 32 KiB that compiled code takes by itself are enough for nearly every text, and a larger stack
    // costs more to make than a short text to split.
    state->stack = pcre2_jit_stack_create(kStackMinBytes, kStackMaxBytes, nullptr);
    if (state->stack != nullptr) {
      pcre2_jit_stack_assign(state->context, nullptr, state->stack);
      result = run(0);
    }
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = run(PCRE2_NO_JIT);
  }
  if (result == PCRE2_ERROR_NOMATCH) {
    return false;
  }
  if (result < 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "text of ", text.size(), " bytes cannot be split by the tokenizer's pattern: ", ErrorText(result),
        ", expected shorter runs of one kind of character"));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state->data);
  match = {ends[0], ends[1]};
  return true;
}

absl::Status Matcher::FindAll(std::string_view text, std::vector<ByteRange>& matches) {
  matches.clear();
  size_t start = 0;
  while (start <= text.size()) {
    ByteRange match;
    ASSIGN_OR_RETURN(const bool found, FindFrom(text, start, match));
    if (!found) {
      break;
    }
    const bool empty = match.begin == match.end;
    if (!empty || matches.empty() || match.begin != matches.back().end) {
      matches.push_back(match);
    }
    start = match.end;
    if (empty) {  // step over one character
      ++start;
      while (start < text.size() && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) {
        ++start;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist
