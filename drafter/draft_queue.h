#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/threads/spin_wait.h"
#include "common/tree/token_tree.h"
#include "drafter/draft_round.h"
#include "drafter/gather_rule.h"

namespace arborist::drafter {

// Many threads, one device: calls take turns. A caller that finds the device free drafts for all whose
// requests wait, as many as a round takes, as soon as the rule says so; while it does, the next ones gather.
class DraftQueue {
 public:
  using Clock = std::chrono::steady_clock;

  // A sequence's place: by it the queue knows how many draft at present. The queue outlives it.
  class Seat {
   public:
    explicit Seat(DraftQueue& queue);
    ~Seat();
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    friend class DraftQueue;
    DraftQueue& queue_;
    Presence presence_;  // guarded by the queue's mutex
  };

  // `on_device_failure` hears that the device cannot be used any more, from a caller's thread. May be empty.
  DraftQueue(DraftRound& round, GatherRule rule, std::function<void(const absl::Status&)> on_device_failure);

  absl::StatusOr<TokenTree> Draft(const DraftRequest& request, Seat& seat);
  // Anything else that uses the device. Goes before rounds that have not started.
  absl::Status InTurn(absl::FunctionRef<absl::Status()> work);

 private:
  struct Waiting {
    const DraftRequest* request;
    Clock::time_point since;
    TokenTree tree{};
    absl::Status status{};
    bool done = false;
    std::condition_variable woken{};
  };
  // Under the mutex.
  bool Starts() const;
  int Drafting(Clock::time_point now) const;
  void RunRound(std::unique_lock<std::mutex>& lock);
  void Release();

  // After an error: of the device itself, or only of the call?
  void LookAtDevice(const absl::Status& status);

  DraftRound& round_;
  const GatherRule rule_;
  SpinWait spin_;  // of the first of those who wait
  const std::function<void(const absl::Status&)> on_device_failure_;
  std::atomic<uint64_t> arrivals_{0};  // changes under the mutex, is watched without
  std::mutex mutex_;
  std::vector<Seat*> seats_;
  bool busy_ = false;
  int turns_wanted_ = 0;
  std::condition_variable turn_;
  std::vector<Waiting*> waiting_;  // in the order of arrival
  // Of the round that runs.
  std::vector<Waiting*> running_;
  std::vector<const DraftRequest*> requests_;
  std::vector<TokenTree*> trees_;
};

}  // namespace arborist::drafter
