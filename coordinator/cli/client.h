#pragma once

namespace arborist::coordinator {

// The `arborist` command. Returns its exit status: 0, 1 for what a server said or a lost connection, 2 for a
// wrong command line.
int RunClient(int argc, const char* const* argv);

}  // namespace arborist::coordinator
