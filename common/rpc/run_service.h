#pragma once

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/server.h"

namespace arborist {

// What the main() of every service does: reads the command line, prints help or the error, serves until a
// signal. `read` gives StatusOr of {config, help}; `serve` takes the config and the signal, and returns when
// drained. Exit status: 0 after help or a drain, 2 for a bad command line or config, 1 for anything later.
template <typename Read, typename Serve>
int RunService(const char* binary, int argc, const char* const* argv, const Read& read, const Serve& serve) {
  TerminationSignal signal;  // before any thread
  const auto line = read(argc, argv);
  if (!line.ok()) {
    std::fprintf(stderr, "%s: %s\n", binary, std::string(line.status().message()).c_str());
    return 2;
  }
  if (!line->help.empty()) {
    std::fputs(line->help.c_str(), stdout);
    return 0;
  }
  if (const absl::Status status = serve(line->config, signal); !status.ok()) {
    std::fprintf(stderr, "%s: %s\n", binary, std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace arborist
