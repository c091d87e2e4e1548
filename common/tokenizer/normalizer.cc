#include "common/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"

namespace arborist {
namespace {

using Kind = NormalizerStep::Kind;

utf8proc_option_t FormOptions(Kind kind) {
  const int compose = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  const int decompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  switch (kind) {
    case Kind::kNfc:
      return static_cast<utf8proc_option_t>(compose);
    case Kind::kNfd:
      return static_cast<utf8proc_option_t>(decompose);
    case Kind::kNfkc:
      return static_cast<utf8proc_option_t>(compose | UTF8PROC_COMPAT);
    default:
      return static_cast<utf8proc_option_t>(decompose | UTF8PROC_COMPAT);
  }
}

absl::Status ToForm(Kind kind, std::string_view text, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, FormOptions(kind));
  if (bytes < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("text of ", text.size(), " bytes cannot be normalized: ",
                                                     utf8proc_errmsg(bytes), ", expected a shorter text"));
  }
  out.assign(reinterpret_cast<const char*>(mapped), static_cast<size_t>(bytes));
  std::free(mapped);
  return absl::OkStatus();
}

// Each character by itself: no special case for a sigma at the end of a word.
void ToLower(std::string_view text, std::string& out) {
  constexpr uint32_t kDottedCapitalI = 0x130;  // the only one that becomes two characters
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text.substr(at));
    at += step.bytes;
    if (step.character == kDottedCapitalI) {
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(step.character))), out);
    }
  }
}

}  // namespace

bool IsSurelyComposed(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0xCC) {  // below U+0300
      ++at;
      continue;
    }
    const Utf8Step step = NextUtf8(text.substr(at));
    const uint32_t c = step.character;
    const bool sure = (c >= 0x388 && c < 0x483) || (c >= 0x4E00 && c < 0xA000) ||
                      (c >= 0x3041 && c < 0x3097) || (c >= 0x30A1 && c < 0x30FB) ||
                      (c >= 0xAC00 && c < 0xD7A4) || (c >= 0x2010 && c < 0x2028) ||
                      (c >= 0x3000 && c < 0x3020) || (c >= 0xFF01 && c < 0xFF5F);
    if (!sure) {
      return false;
    }
    at += step.bytes;
  }
  return true;
}

absl::StatusOr<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer out;
  for (const NormalizerStep& step : steps) {
    out.steps_.push_back({step, std::nullopt});
    if (step.kind == Kind::kReplace) {
      absl::StatusOr<Pattern> pattern = Pattern::Compile(step.pattern, step.literal);
      if (!pattern.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("normalizer: ", pattern.status().message()));
      }
      out.steps_.back().pattern = *std::move(pattern);
    }
  }
  return out;
}

Normalizer::Run::Run(const Normalizer& normalizer) : normalizer_(&normalizer) {
  for (const Step& step : normalizer.steps_) {
    matchers_.emplace_back();
    if (step.pattern.has_value()) {
      matchers_.back().emplace(*step.pattern);
    }
  }
}

absl::Status Normalizer::Run::Replace(size_t step, std::string_view text, std::string& out) {
  RETURN_IF_ERROR(matchers_[step]->FindAll(text, matches_));
  size_t at = 0;
  for (const ByteRange& match : matches_) {
    out += text.substr(at, match.begin - at);
    out += normalizer_->steps_[step].what.content;
    at = match.end;
  }
  out += text.substr(at);
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> Normalizer::Run::Apply(std::string_view text) {
  for (size_t i = 0; i < normalizer_->steps_.size(); ++i) {
    const NormalizerStep& step = normalizer_->steps_[i].what;
    next_.clear();
    switch (step.kind) {
      case Kind::kNfc:
        if (IsSurelyComposed(text)) {
          continue;
        }
        [[fallthrough]];
      case Kind::kNfd:
      case Kind::kNfkc:
      case Kind::kNfkd:
        RETURN_IF_ERROR(ToForm(step.kind, text, next_));
        break;
      case Kind::kLowercase:
        ToLower(text, next_);
        break;
      case Kind::kReplace:
        RETURN_IF_ERROR(Replace(i, text, next_));
        break;
      case Kind::kPrepend:
        if (text.empty()) {
          continue;
        }
        next_ = absl::StrCat(step.content, std::string(text));
        break;
      case Kind::kStrip:  // a shorter view of the same text
        if (step.left) {
          text.remove_prefix(LeadingSpaceBytes(text));
        }
        if (step.right) {
          text = text.substr(0, TrailingSpaceBegin(text));
        }
        continue;
    }
    std::swap(current_, next_);
    text = current_;
  }
  return text;
}

}  // namespace arborist
