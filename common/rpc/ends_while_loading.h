#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "common/rpc/server.h"

namespace arborist {

// A process that still loads has nothing open: as long as this lives, SIGTERM or SIGINT ends it at once. Once
// it is destroyed, the signal waits for TerminationSignal::Wait again.
class EndsWhileLoading {
 public:
  // `last_words` gets the signal, on a thread of this object, and returns the exit status. No destructor runs
  // after it.
  EndsWhileLoading(TerminationSignal& signal, std::function<int(int)> last_words)
      : thread_([&signal, last_words = std::move(last_words)](const std::stop_token& loaded) {
          while (!loaded.stop_requested()) {
            if (const std::optional<int> number = signal.WaitFor(kLook)) {
              const int status = last_words(*number);
              std::fflush(nullptr);
              std::_Exit(status);
            }
          }
        }) {}

 private:
  static constexpr std::chrono::milliseconds kLook{20};  // how much longer a load may take for it

  std::jthread thread_;
};

}  // namespace arborist
