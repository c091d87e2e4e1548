#pragma once

namespace arborist::coordinator {

// The whole process: configuration, peers, server, until SIGTERM or SIGINT. Returns its exit status: 0 after
// a drained end, 1 for what failed, 2 for a wrong command line or configuration.
int RunProcess(int argc, const char* const* argv);

}  // namespace arborist::coordinator
