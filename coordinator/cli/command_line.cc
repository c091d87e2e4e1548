#include "coordinator/cli/command_line.h"

#include <cstdio>
#include <string>

#include "coordinator/cli/connection.h"

namespace arborist::coordinator {

std::optional<int> ParseCommandLine(FlagSet& flags, int argc, const char* const* argv) {
  std::string help;
  flags.AddSwitch("help", "this text", [&] { help = flags.Help(); });
  if (const absl::Status status = flags.Parse(argc, argv); !status.ok()) {
    return PrintUsageError(status);
  }
  if (!help.empty()) {
    std::fputs(help.c_str(), stdout);
    return 0;
  }
  return std::nullopt;
}

}  // namespace arborist::coordinator
