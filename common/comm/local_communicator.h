#pragma once

#include <array>
#include <condition_variable>
#include <mutex>

#include "common/comm/communicator.h"

namespace arborist {

inline constexpr int kMaxLocalRanks = 8;

// What the threads of one group share. Outlives its communicators.
class LocalGroup {
 public:
  explicit LocalGroup(int size);  // 1..kMaxLocalRanks
  int size() const { return size_; }
  // A rank that cannot go on calls this: every waiting and every later collective returns ABORTED.
  void Abort();

 private:
  friend class LocalCommunicator;
  // Returns when all ranks have arrived.
  absl::Status Wait();

  const int size_;
  std::array<void*, kMaxLocalRanks> buffer_{};
  std::mutex mutex_;
  std::condition_variable arrived_all_;
  int arrived_ = 0;
  uint64_t round_ = 0;
  bool aborted_ = false;
};

// Ranks as threads of one process on the host: the oracle for faster ones. Used by one thread.
class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(LocalGroup& group, int rank);
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  absl::Status AllReduceSum(std::span<float> values) override;
  absl::Status AllGather(std::span<const float> mine, std::span<float> all) override;
  absl::Status Broadcast(std::span<std::byte> bytes, int root) override;

 private:
  LocalGroup& group_;
  const int rank_;
};

}  // namespace arborist
