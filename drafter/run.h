#pragma once

namespace arborist::drafter {

// The process: reads its config, serves until SIGTERM or SIGINT, drains. Returns the exit code: 0, 1 for a
// failure, 2 for a bad command line or config.
int RunProcess(int argc, const char* const* argv);

}  // namespace arborist::drafter
