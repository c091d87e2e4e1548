#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tree/token_tree.h"
#include "drafter/draft_round.h"

namespace arborist::drafter {

// Many threads, one device: calls take turns. A caller that finds the device free drafts for all whose
// requests wait, as many as a round takes; while it does, the next ones gather.
class DraftQueue {
 public:
  // `on_device_failure` hears that the device cannot be used any more, from a caller's thread. May be empty.
  DraftQueue(DraftRound& round, std::function<void(const absl::Status&)> on_device_failure);

  absl::StatusOr<TokenTree> Draft(const DraftRequest& request);
  // Anything else that uses the device.
  absl::Status InTurn(absl::FunctionRef<absl::Status()> work);

 private:
  struct Waiting {
    const DraftRequest* request;
    TokenTree* tree;
    absl::Status* status;
    bool* done;
  };
  void RunRound(std::unique_lock<std::mutex>& lock);

  // After an error: of the device itself, or only of the call?
  void LookAtDevice(const absl::Status& status);

  DraftRound& round_;
  const std::function<void(const absl::Status&)> on_device_failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;
  std::vector<Waiting> waiting_;  // in the order of arrival
  // Of the round that runs.
  std::vector<Waiting> running_;
  std::vector<const DraftRequest*> requests_;
  std::vector<TokenTree*> trees_;
};

}  // namespace arborist::drafter
