#include "common/grammar/string_format.h"

#include <string>
#include <utility>

namespace arborist {
namespace {

const std::string& Date() {
  static const std::string date =
      "((000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
      "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
      "|(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)";
  return date;
}

const std::string& Time() {
  static const std::string time =
      "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
  return time;
}

}  // namespace

std::optional<std::string_view> RegexOfFormat(std::string_view format) {
  static const std::pair<std::string_view, std::string> formats[] = {
      {"date", Date()},
      {"time", Time()},
      {"date-time", Date() + "T" + Time()},
      {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"ipv4", "((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
      {"email",
       "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)+"},
      {"uri",
       "https?://[A-Za-z0-9]+(-[A-Za-z0-9]+)*(\\.[A-Za-z0-9]+(-[A-Za-z0-9]+)*)*(:[1-9]\\d{0,3})?"
       "(/[A-Za-z0-9._~-]+)*/?(\\?[A-Za-z0-9._~=&-]*)?(#[A-Za-z0-9._~-]*)?"},
  };
  for (const auto& [name, regex] : formats) {
    if (name == format) {
      return regex;
    }
  }
  return std::nullopt;
}

}  // namespace arborist
