#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "arborist/v1/coordinator.pb.h"
#include "common/rpc/flags.h"

namespace arborist::coordinator {

// A flag for every field of a request but its prompt. `request` must live until the flags are parsed. A flag
// that is no number, no UTF-8 or not of its form is InvalidArgument and names itself; bounds are the server's
// to check.
void AddRequestFlags(FlagSet& flags, v1::GenerateRequest& request);

// "1,2,3" appended to `out`.
absl::Status ParseIds(const std::string& flag, const std::string& text,
                      google::protobuf::RepeatedField<int32_t>& out);

// The whole file as UTF-8.
absl::StatusOr<std::string> ReadTextFile(const std::string& flag, const std::string& path);

}  // namespace arborist::coordinator
