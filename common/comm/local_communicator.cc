#include "common/comm/local_communicator.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

float TreeSum(const std::array<void*, kMaxLocalRanks>& buffer, size_t index, int begin, int end) {
  if (end - begin == 1) {
    return static_cast<const float*>(buffer[begin])[index];
  }
  const int middle = begin + (end - begin + 1) / 2;
  return TreeSum(buffer, index, begin, middle) + TreeSum(buffer, index, middle, end);
}

}  // namespace

LocalGroup::LocalGroup(int size) : size_(size) {
  Check(size >= 1 && size <= kMaxLocalRanks, "a local group has 1 to 8 ranks");
}

void LocalGroup::Abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  arrived_all_.notify_all();
}

absl::Status LocalGroup::Wait() {
  std::unique_lock lock(mutex_);
  if (!aborted_ && ++arrived_ == size_) {
    arrived_ = 0;
    ++round_;
    arrived_all_.notify_all();
    return absl::OkStatus();
  }
  const uint64_t round = round_;
  arrived_all_.wait(lock, [&] { return aborted_ || round_ != round; });
  return round_ != round ? absl::OkStatus() : absl::AbortedError("another rank gave up");
}

LocalCommunicator::LocalCommunicator(LocalGroup& group, int rank) : group_(group), rank_(rank) {
  Check(rank >= 0 && rank < group.size(), "a rank is inside its group");
}

absl::Status LocalCommunicator::AllReduceSum(std::span<float> values) {
  if (size() == 1) {
    return absl::OkStatus();
  }
  group_.buffer_[rank_] = values.data();
  RETURN_IF_ERROR(group_.Wait());
  // Each rank owns one range of indices: it alone reads and writes them, in every rank's buffer.
  const size_t begin = values.size() * static_cast<size_t>(rank_) / static_cast<size_t>(size());
  const size_t end = values.size() * static_cast<size_t>(rank_ + 1) / static_cast<size_t>(size());
  for (size_t i = begin; i < end; ++i) {
    const float sum = TreeSum(group_.buffer_, i, 0, size());
    for (int rank = 0; rank < size(); ++rank) {
      static_cast<float*>(group_.buffer_[rank])[i] = sum;
    }
  }
  return group_.Wait();
}

absl::Status LocalCommunicator::AllGather(std::span<const float> mine, std::span<float> all) {
  Check(all.size() == mine.size() * static_cast<size_t>(size()), "all holds every rank's values");
  group_.buffer_[rank_] = const_cast<float*>(mine.data());
  RETURN_IF_ERROR(group_.Wait());
  for (int rank = 0; rank < size(); ++rank) {
    const float* from = static_cast<const float*>(group_.buffer_[rank]);
    std::copy(from, from + mine.size(), all.data() + static_cast<size_t>(rank) * mine.size());
  }
  return group_.Wait();  // nobody's `mine` may change before all have read it
}

absl::Status LocalCommunicator::Broadcast(std::span<std::byte> bytes, int root) {
  Check(root >= 0 && root < size(), "the root is a rank");
  group_.buffer_[rank_] = bytes.data();
  RETURN_IF_ERROR(group_.Wait());
  if (rank_ != root && !bytes.empty()) {
    std::memcpy(bytes.data(), group_.buffer_[root], bytes.size());
  }
  return group_.Wait();
}

}  // namespace arborist
