#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace arborist::bad_input {

// Of the build under test: ARBORIST_BIN or ARBORIST_BINARY_DIR says where.
std::string ProgramPath(const std::string& name);

// Starts words[0] with the rest as its arguments and appends what it says to `log`. Its caller ends it and
// waits for it.
absl::StatusOr<pid_t> StartProgram(std::vector<std::string> words, const std::string& log);

}  // namespace arborist::bad_input
