#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/grammar/constraint.h"
#include "common/grammar/token_vocabulary.h"

namespace arborist::verifier {

// Compiles the constraints of requests on a thread of its own, where a large schema takes a tenth of a
// second, and keeps them: requests that ask for the same share one, and with it the masks that it has made.
// All of them share one memory. Thread-safe.
class ConstraintCompiler {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Constraint>>;
  using Done = std::function<void(Result)>;

  static constexpr size_t kMostWaiting = 256;
  static constexpr size_t kMostKept = 64;  // that nobody uses at present

  explicit ConstraintCompiler(std::shared_ptr<const TokenVocabulary> vocabulary);
  ~ConstraintCompiler() { Stop(); }

  // `done` hears the result on the compiler's thread, or at once, before this returns: a constraint that is
  // kept, RESOURCE_EXHAUSTED if too many wait. InvalidArgument says field, place and what is expected.
  void Compile(ConstraintSpec spec, Done done);
  // What waits hears UNAVAILABLE, as do later calls.
  void Stop();

 private:
  using Kept = std::list<std::pair<std::string, std::shared_ptr<const Constraint>>>;

  void Loop();
  // Under the mutex. Null: it is not kept.
  std::shared_ptr<const Constraint> Find(const std::string& key);
  void Keep(const std::string& key, std::shared_ptr<const Constraint> constraint);

  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const std::shared_ptr<ConstraintMemory> memory_ = std::make_shared<ConstraintMemory>();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<ConstraintSpec, Done>> waiting_;
  bool stopping_ = false;
  Kept kept_;  // the latest used first
  absl::flat_hash_map<std::string, Kept::iterator> by_key_;
  std::thread thread_;  // since the first call
};

}  // namespace arborist::verifier
