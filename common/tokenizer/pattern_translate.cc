#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/pattern.h"

namespace arborist {
namespace {

// Unicode White_Space, to be put inside a class. PCRE2's own \s also holds U+180E.
constexpr char kSpace[] = "\\p{Z}\\x{09}-\\x{0d}\\x{85}";

// \w of the dialect inside a class, and what it also is outside of one: ² ³ ¹ ¼ ½ ¾. PCRE2's own has no
// marks, no connectors other than _ and every number.
constexpr char kWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr char kWordAlone[] = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// Whether `name` is a script. A script's bare name means its extensions too in PCRE2 (、 would be Han), in
// the dialect the characters of the script alone.
bool IsScript(std::string_view name) {
  const std::string pattern = absl::StrCat("\\p{sc:", std::string(name), "}");
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF,
                                   &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '[') {
        ASSIGN_OR_RETURN(const std::string set, Class());
        out_ += set;
      } else if (c == '\\') {
        RETURN_IF_ERROR(Escape(out_, /*in_class=*/false));
      } else if (c == '{') {
        RETURN_IF_ERROR(Quantifier());
      } else if (pattern_.substr(at_, 2) == "(?") {
        RETURN_IF_ERROR(Group());
      } else {
        out_.push_back(c);
        ++at_;
      }
    }
    return out_;
  }

 private:
  absl::Status Refuse(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("pattern=", std::string(pattern_), " has ", what,
                                                   " at byte ", at_, ", expected a form that PCRE2 shares"));
  }

  // {n}, {n,} and {n,m} are shared; a + after them and {,m} mean something else there.
  absl::Status Quantifier() {
    const size_t end = pattern_.find('}', at_);
    const bool is_one =
        end != std::string_view::npos &&
        pattern_.substr(at_, end - at_).find_first_not_of("{0123456789,") == std::string_view::npos;
    if (is_one && pattern_.substr(at_, 2) == "{,") {
      return Refuse("{,n}");
    }
    if (is_one && pattern_.substr(end + 1, 1) == "+") {
      return Refuse("a possessive {n}+");
    }
    out_.push_back(pattern_[at_++]);
    return absl::OkStatus();
  }

  // (?: (?= (?! (?< (?> (?# are shared; of the options only i: m is another one there.
  absl::Status Group() {
    const size_t end =
        pattern_.find_first_not_of("-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", at_ + 2);
    const std::string_view options =
        pattern_.substr(at_ + 2, end == std::string_view::npos ? end : end - at_ - 2);
    if (options.find_first_not_of("-i") != std::string_view::npos) {
      return Refuse(absl::StrCat("the option \"", std::string(options), "\""));
    }
    out_ += "(?";
    at_ += 2;
    return absl::OkStatus();
  }

  absl::Status Escape(std::string& out, bool in_class) {
    if (at_ + 1 >= pattern_.size()) {
      return Refuse("a lone backslash");
    }
    const char kind = pattern_[at_ + 1];
    if (kind == 's') {
      out += in_class ? kSpace : absl::StrCat("[", kSpace, "]");
    } else if (kind == 'S' && !in_class) {
      out += absl::StrCat("[^", kSpace, "]");
    } else if (kind == 'w') {
      out += in_class ? kWord : absl::StrCat("[", kWord, kWordAlone, "]");
    } else if (kind == 'W' && !in_class) {
      out += absl::StrCat("[^", kWord, kWordAlone, "]");
    } else if ((kind == 'p' || kind == 'P') && pattern_.substr(at_ + 2, 1) == "{") {
      const size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos) {
        return Refuse("an unfinished property");
      }
      std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
      const bool negated = !name.empty() && name[0] == '^';
      name.remove_prefix(negated);
      absl::StrAppend(&out, "\\", std::string(1, kind), "{", negated ? "^" : "", IsScript(name) ? "sc:" : "",
                      std::string(name), "}");
      at_ = end + 1;
      return absl::OkStatus();
    } else if (kind == 'u') {
      const std::string_view digits = pattern_.substr(at_ + 2, 4);
      if (digits.size() != 4 ||
          digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
        return Refuse("\\u without four hexadecimal digits");
      }
      absl::StrAppend(&out, "\\x{", std::string(digits), "}");
      at_ += 4;
    } else if (kind == 'h' || kind == 'H' || kind == 'W' || kind == 'B' || kind == 'S' ||
               (kind == 'b' && !in_class)) {
      return Refuse(absl::StrCat("\\", std::string(1, kind), in_class ? " in a class" : ""));
    } else {
      out.push_back('\\');
      out.push_back(kind);
    }
    at_ += 2;
    return absl::OkStatus();
  }

  // One [...] from `at_` on.
  absl::StatusOr<std::string> Class() {
    std::string set = "[";
    ++at_;
    const bool negated = at_ < pattern_.size() && pattern_[at_] == '^';
    if (negated) {
      set.push_back('^');
      ++at_;
    }
    bool first = true;
    while (at_ < pattern_.size() && (pattern_[at_] != ']' || first)) {
      first = false;
      if (pattern_[at_] == '\\') {
        RETURN_IF_ERROR(Escape(set, /*in_class=*/true));
      } else if (pattern_.substr(at_, 3) == "&&[") {
        if (negated) {
          return Refuse("an intersection in a negated class");
        }
        return Intersection(set + "]");
      } else if (pattern_.substr(at_, 2) == "&&") {
        return Refuse("an intersection with more than one class");
      } else if (pattern_[at_] == '[' && pattern_.substr(at_, 2) != "[:") {
        return Refuse("a class in a class");
      } else if (pattern_.substr(at_, 2) == "[:") {
        const size_t end = pattern_.find(":]", at_);
        if (end == std::string_view::npos) {
          return Refuse("an unfinished [: :]");
        }
        const std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
        if (name != "digit" && name != "space") {
          return Refuse(absl::StrCat("[:", std::string(name), ":]"));
        }
        set += name == "space" ? kSpace : "\\p{Nd}";
        at_ = end + 2;
      } else {
        set.push_back(pattern_[at_++]);
      }
    }
    if (at_ >= pattern_.size()) {
      return Refuse("an unfinished class");
    }
    ++at_;
    return set + "]";
  }

  // `set` && [...] ] : a character of `set` that the second class holds too.
  absl::StatusOr<std::string> Intersection(const std::string& set) {
    at_ += 2;
    ASSIGN_OR_RETURN(const std::string other, Class());
    if (at_ >= pattern_.size() || pattern_[at_] != ']') {
      return Refuse("an intersection with more than one class");
    }
    ++at_;
    return absl::StrCat("(?:(?=", other, ")", set, ")");
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslatePattern(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace arborist
