#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace arborist {

// Reads a textproto file. Unknown or repeated fields, wrong types and unknown enum names are InvalidArgument
// "path:line:column: ..."; a file that cannot be read is NotFound.
absl::Status LoadTextproto(const std::string& path, google::protobuf::Message& message);
absl::Status ParseTextproto(const std::string& text, const std::string& name,
                            google::protobuf::Message& message);

}  // namespace arborist
