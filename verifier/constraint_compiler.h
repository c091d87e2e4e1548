#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/grammar/constraint.h"
#include "common/grammar/constraint_store.h"
#include "common/grammar/token_vocabulary.h"
#include "verifier/work_queue.h"

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
  // What waits hears UNAVAILABLE before this returns, as do later calls.
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

  void CompileOne(const std::string& key);
  // Under the mutex: whoever does not want any more leaves, and a job that nobody waits for goes.
  bool StillWanted(const std::string& key, Cancelled& cancelled);
  void DropUnwanted(Cancelled& cancelled);  // of all that are queued
  static void Tell(const Cancelled& cancelled);
  void End(const std::string& key, const Result& result);

  ConstraintStore store_;
  std::mutex mutex_;  // before the queue's
  absl::flat_hash_map<std::string, Job> jobs_;
  bool stopping_ = false;
  WorkQueue<std::string> queue_;  // keys of jobs
};

}  // namespace arborist::verifier
