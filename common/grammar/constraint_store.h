#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "common/grammar/constraint.h"
#include "common/grammar/token_vocabulary.h"

namespace arborist {

// The constraints of one process: equal specs share one, and with it the masks that it has made; all share
// one memory. Those that nobody uses are kept for whoever asks next, the latest used first, within a bound.
// Thread-safe.
class ConstraintStore {
 public:
  using Result = absl::StatusOr<std::shared_ptr<const Constraint>>;

  static constexpr size_t kMostUnused = 64;
  static constexpr size_t kUnusedBytes = size_t{128} << 20;

  explicit ConstraintStore(std::shared_ptr<const TokenVocabulary> vocabulary,
                           std::shared_ptr<ConstraintMemory> memory = std::make_shared<ConstraintMemory>(),
                           size_t unused_bytes = kUnusedBytes);

  // Equal for equal specs only.
  static std::string KeyOf(const ConstraintSpec& spec);

  // Null: it is not kept.
  std::shared_ptr<const Constraint> Find(const std::string& key);
  // Finds or compiles (tenths of a second); whoever asks for the same meanwhile waits for it. InvalidArgument
  // says field, place and what is expected; RESOURCE_EXHAUSTED: those in use leave no room for it.
  Result Get(const ConstraintSpec& spec);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Constraint> constraint;
  };
  using Kept = std::list<Entry>;

  // All under the mutex.
  std::shared_ptr<const Constraint> FindKept(const std::string& key);
  // Unused ones go, the oldest first, until what they hold and their number is within this.
  void Trim(size_t unused_bytes);

  const std::shared_ptr<const TokenVocabulary> vocabulary_;
  const std::shared_ptr<ConstraintMemory> memory_;
  const size_t unused_bytes_;
  std::mutex mutex_;
  std::condition_variable made_;
  absl::flat_hash_set<std::string> in_the_making_;
  Kept kept_;                                                     // the latest used first
  absl::flat_hash_map<std::string_view, Kept::iterator> by_key_;  // of the entries' own keys
};

}  // namespace arborist
