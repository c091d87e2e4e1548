#pragma once

#include <optional>

#include "common/rpc/flags.h"

namespace arborist::coordinator {

// Parses, prints help or the mistake. A value: the command ends with it.
std::optional<int> ParseCommandLine(FlagSet& flags, int argc, const char* const* argv);

}  // namespace arborist::coordinator
