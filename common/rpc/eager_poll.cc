#include "common/rpc/eager_poll.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>

#include "common/threads/pause.h"

namespace arborist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

std::atomic<nanoseconds> longest{nanoseconds(0)};
// When an event was last found, by any thread.
std::atomic<nanoseconds> last_event{nanoseconds(0)};

nanoseconds Now() { return Clock::now().time_since_epoch(); }

int Sleep(int epoll, epoll_event* events, int most, int timeout_ms) {
  return epoll_pwait(epoll, events, most, timeout_ms, nullptr);
}

// As epoll_wait.
int Look(int epoll, epoll_event* events, int most, int timeout_ms) {
  const nanoseconds begin = Now();
  nanoseconds now = begin;
  int found = 0;
  if (timeout_ms != 0) {
    nanoseconds end = last_event.load(std::memory_order_relaxed) + longest.load(std::memory_order_relaxed);
    if (timeout_ms > 0) {
      end = std::min(end, begin + std::chrono::milliseconds(timeout_ms));
    }
    for (; found == 0 && now < end; now = Now()) {
      found = Sleep(epoll, events, most, 0);
      if (found == 0) {
        sched_yield();  // whoever has work for this core goes first, the thread that handed over to us too
        Pause();
      }
    }
  }
  if (found == 0) {
    const auto looked = std::chrono::duration_cast<std::chrono::milliseconds>(now - begin);
    found = Sleep(epoll, events, most,
                  timeout_ms < 0 ? timeout_ms : std::max(0, timeout_ms - static_cast<int>(looked.count())));
  }
  if (found > 0) {
    last_event.store(Now(), std::memory_order_relaxed);
  }
  return found;
}

}  // namespace

void LookForMessages(std::chrono::microseconds how_long) { longest = how_long; }

}  // namespace arborist

// The name that gRPC calls.
extern "C" int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  return arborist::Look(epoll, events, most, timeout_ms);
}
