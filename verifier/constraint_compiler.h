#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/grammar/constraint.h"
#include "common/grammar/constraint_store.h"
#include "common/grammar/token_vocabulary.h"

namespace arborist::verifier {

// Compiles the constraints of requests on a thread of its own, where a large schema takes a tenth of a
// second, and keeps them in a store. Those that ask for the same wait together, and what nobody waits for any
// more is not compiled. Thread-safe.
class ConstraintCompiler {
 public:
  using Result = ConstraintStore::Result;
  using Done = std::function<void(Result)>;
  using Wanted = std::function<bool()>;

  static constexpr size_t kMostWaiting = 256;  // different ones

  explicit ConstraintCompiler(std::shared_ptr<const TokenVocabulary> vocabulary);
  ~ConstraintCompiler() { Stop(); }

  // `done` hears the result on the compiler's thread, or at once, before this returns: a constraint that is
  // kept, RESOURCE_EXHAUSTED if too many wait. InvalidArgument says field, place and what is expected.
  // `wanted` is asked until `done` is called, on any thread and with the compiler's lock held; once it said
  // no, `done` hears CANCELLED.
  void Compile(
      ConstraintSpec spec, Done done, Wanted wanted = [] { return true; });
  // What waits hears UNAVAILABLE, as do later calls.
  void Stop();

 private:
  struct Waiter {
    Done done;
    Wanted wanted;
  };
  struct Job {
    ConstraintSpec spec;
    std::vector<Waiter> waiters;  // of the one that is being compiled, too
  };
  // What is to be told once the lock is open.
  using Cancelled = std::vector<Done>;

  void Loop();
  // Under the mutex: whoever does not want any more leaves, and jobs that nobody waits for go.
  void DropUnwanted(Cancelled& cancelled);
  static void Tell(const Cancelled& cancelled);

  ConstraintStore store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;  // keys, the first to come first
  absl::flat_hash_map<std::string, Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;  // since the first call
};

}  // namespace arborist::verifier
