#include "common/rpc/eager_poll.h"

#include <sched.h>
#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/threads/core_watch.h"
#include "common/threads/pause.h"

namespace arborist {
namespace {

using Clock = CoreWatch::Clock;
using std::chrono::milliseconds;

std::atomic<Clock::duration> longest{Clock::duration(0)};
// When an event was last found, by any thread.
std::atomic<Clock::time_point> last_event{Clock::time_point()};
CoreWatch core;

int Sleep(int epoll, epoll_event* events, int most, int timeout_ms) {
  return epoll_pwait(epoll, events, most, timeout_ms, nullptr);
}

// As epoll_wait.
int Look(int epoll, epoll_event* events, int most, int timeout_ms) {
  const Clock::time_point begin = Clock::now();
  Clock::time_point now = begin;
  int found = 0;
  if (timeout_ms != 0) {
    Clock::time_point end =
        last_event.load(std::memory_order_relaxed) + longest.load(std::memory_order_relaxed);
    if (timeout_ms > 0) {
      end = std::min(end, begin + milliseconds(timeout_ms));
    }
    while (found == 0 && now < end && core.MayLook(now)) {
      found = Sleep(epoll, events, most, 0);
      if (found == 0) {
        sched_yield();  // whoever has work for this core goes first, the thread that handed over to us too
        Pause();
      }
      const Clock::time_point before = std::exchange(now, Clock::now());
      core.Looked(before, now);
    }
  }
  if (found == 0) {
    const auto looked = std::chrono::duration_cast<milliseconds>(now - begin);
    found = Sleep(epoll, events, most,
                  timeout_ms < 0 ? timeout_ms : std::max(0, timeout_ms - static_cast<int>(looked.count())));
  }
  if (found > 0) {
    last_event.store(Clock::now(), std::memory_order_relaxed);
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
