#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace arborist::drafter {

// A sequence that can be told to end. Must not block.
class RunningSequence {
 public:
  virtual ~RunningSequence() = default;
  virtual void EndWith(const absl::Status& status) = 0;
};

// Which sequences run, by (request_id, sample_index). Bounds their number and lets a higher epoch end an
// older one. Thread-safe.
class SequenceTable {
 public:
  using Key = std::pair<std::string, uint32_t>;

  explicit SequenceTable(size_t capacity) : capacity_(capacity) {}

  // RESOURCE_EXHAUSTED when full, FAILED_PRECONDITION (STALE_EPOCH) for an epoch that is not above the
  // running one's. The one taken over is told ABORTED (TAKEN_OVER) and still counts until it removes itself.
  absl::Status Add(const Key& key, int64_t epoch, RunningSequence* sequence);
  // When it returns, the table does not touch the sequence any more.
  void Remove(RunningSequence* sequence);

 private:
  struct Entry {
    int64_t epoch = 0;
    RunningSequence* sequence = nullptr;
  };
  const size_t capacity_;
  std::mutex mutex_;
  std::multimap<Key, Entry> entries_;
};

}  // namespace arborist::drafter
