#include "drafter/sequence_table.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_bridge.h"

namespace arborist::drafter {

absl::Status SequenceTable::Add(const Key& key, int64_t epoch, RunningSequence* sequence) {
  std::lock_guard lock(mutex_);
  const auto [begin, end] = entries_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    if (it->second.epoch >= epoch) {
      return ErrorWithReason(
          absl::StatusCode::kFailedPrecondition, reason::kStaleEpoch,
          absl::StrCat("sequence.epoch=", epoch, ", expected more than the running ", it->second.epoch));
    }
  }
  if (entries_.size() >= capacity_) {
    return WithRetryDelay(
        ErrorWithReason(
            absl::StatusCode::kResourceExhausted, reason::kQueueFull,
            absl::StrCat(entries_.size(), " sequences are running, expected fewer than ", capacity_)),
        std::chrono::milliseconds(100));
  }
  for (auto it = begin; it != end; ++it) {
    it->second.sequence->EndWith(ErrorWithReason(absl::StatusCode::kAborted, reason::kTakenOver,
                                                 absl::StrCat("epoch ", epoch, " took the sequence over")));
  }
  entries_.emplace(key, Entry{epoch, sequence});
  return absl::OkStatus();
}

void SequenceTable::Remove(RunningSequence* sequence) {
  std::lock_guard lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    if (it->second.sequence == sequence) {
      entries_.erase(it);
      return;
    }
  }
}

}  // namespace arborist::drafter
