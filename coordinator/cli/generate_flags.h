#pragma once

#include <string>

#include "absl/status/status.h"
#include "arborist/v1/coordinator.pb.h"
#include "coordinator/cli/connection.h"

namespace arborist::coordinator {

// What `arborist generate` was asked for.
struct GenerateFlags {
  Connection connection;
  v1::GenerateRequest request;
  bool json = false;
  std::string help;  // not empty: print it and leave
};

// InvalidArgument names the flag. Bounds are the server's to check.
absl::Status ParseGenerateFlags(int argc, const char* const* argv, GenerateFlags& out);

}  // namespace arborist::coordinator
