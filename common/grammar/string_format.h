#pragma once

#include <optional>
#include <string_view>

namespace arborist {

// The regular expression of a "format" of JSON schema, for the whole string; nothing if it is not supported.
// What it matches is of the format; of email and uri it covers the common part. Dates exist (leap years
// included), seconds go to 59, and a time has an offset.
std::optional<std::string_view> RegexOfFormat(std::string_view format);

}  // namespace arborist
