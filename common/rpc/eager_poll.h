#pragma once

#include <chrono>

namespace arborist {

// gRPC's thread sleeps in epoll_wait until a message comes, and to be woken takes it tens of microseconds
// where cores have gone to sleep: of a round of speculation on a GPU that is a tenth, twice. After this call
// it looks again and again instead, until nothing has come for `longest`, and then sleeps as ever: it costs a
// core while messages come, and nothing while they do not or while others want the core. 0, as at the start:
// it sleeps at once. Of the whole process, at any time.
//
// gRPC has no switch for that, so a program that calls this function brings its own epoll_wait, which the
// dynamic linker finds before the C library's.
void LookForMessages(std::chrono::microseconds longest);

}  // namespace arborist
