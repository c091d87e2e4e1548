#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "verifier/tree_masks.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// Makes masks that are not cached, on a thread of its own: a step never waits for them, only the sequence
// that needs them does. Those that wait get a mask each by turns.
class MaskMaker {
 public:
  // Called on the maker's thread when all masks of a tree are made.
  using Done = std::function<void(SequenceHandle, const std::shared_ptr<TreeMasks>&)>;

  explicit MaskMaker(Done done) : done_(std::move(done)) {}
  ~MaskMaker() { Stop(); }

  // Any thread. Masks that nobody else holds any more are dropped.
  void Make(SequenceHandle sequence, std::shared_ptr<TreeMasks> masks);
  // What is not made is never made. Calls of `done` have returned.
  void Stop();

 private:
  void Loop();

  const Done done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<SequenceHandle, std::shared_ptr<TreeMasks>>> waiting_;
  bool stopping_ = false;
  std::thread thread_;  // since the first call of Make
};

}  // namespace arborist::verifier
