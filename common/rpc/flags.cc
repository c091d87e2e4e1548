#include "common/rpc/flags.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist {

void FlagSet::Add(std::string name, std::string help, std::function<absl::Status(const std::string&)> apply) {
  flags_.push_back({std::move(name), std::move(help), /*takes_value=*/true, std::move(apply)});
}

void FlagSet::AddText(std::string name, std::string help, std::function<void(const std::string&)> apply) {
  Add(std::move(name), std::move(help), [apply = std::move(apply)](const std::string& value) {
    apply(value);
    return absl::OkStatus();
  });
}

void FlagSet::AddSwitch(std::string name, std::string help, std::function<void()> apply) {
  flags_.push_back({std::move(name), std::move(help), /*takes_value=*/false,
                    [apply = std::move(apply)](const std::string&) {
                      apply();
                      return absl::OkStatus();
                    }});
}

void FlagSet::AddInteger(std::string name, std::string help, int64_t least, int64_t most,
                         std::function<void(int64_t)> apply) {
  Add(name, std::move(help), [name, least, most, apply = std::move(apply)](const std::string& text) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, "=", text, ", expected an integer in [", least, ", ", most, "]"));
    }
    apply(value);
    return absl::OkStatus();
  });
}

const FlagSet::Flag* FlagSet::Find(const std::string& name) const {
  for (const Flag& flag : flags_) {
    if (flag.name == name) {
      return &flag;
    }
  }
  return nullptr;
}

absl::Status FlagSet::Parse(int argc, const char* const* argv) const {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0 || word.size() == 2) {
      return absl::InvalidArgumentError(absl::StrCat("argument=", word, ", expected a flag; see --help"));
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Flag* flag = Find(name);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " is unknown; see --help"));
    }
    std::string value;
    if (equals != std::string::npos) {
      if (!flag->takes_value) {
        return absl::InvalidArgumentError(absl::StrCat(word, ", expected --", name, " without a value"));
      }
      value = word.substr(equals + 1);
    } else if (flag->takes_value) {
      if (i + 1 >= argc) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " has no value, expected one"));
      }
      value = argv[++i];
    }
    RETURN_IF_ERROR(flag->apply(value));
  }
  return absl::OkStatus();
}

std::string FlagSet::Help() const {
  std::string text = absl::StrCat(usage_, "\n");
  for (const Flag& flag : flags_) {
    absl::StrAppend(&text, "  --", flag.name, flag.takes_value ? " VALUE" : "", "\n      ", flag.help, "\n");
  }
  return text;
}

}  // namespace arborist
