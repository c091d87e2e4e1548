#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "verifier/tree_masks.h"
#include "verifier/verifier.h"
#include "verifier/work_queue.h"

namespace arborist::verifier {

// Makes masks that are not cached, on a thread of its own: a step never waits for them, only the sequence
// that needs them does. Those that wait get a mask each by turns.
class MaskMaker {
 public:
  // Called on the maker's thread when all masks of a tree are made.
  using Done = std::function<void(SequenceHandle, const std::shared_ptr<TreeMasks>&)>;

  explicit MaskMaker(Done done);

  // Any thread. Masks that nobody else holds any more are dropped.
  void Make(SequenceHandle sequence, std::shared_ptr<TreeMasks> masks);
  // What is not made is never made. Calls of `done` have returned.
  void Stop() { (void)queue_.Stop(); }

 private:
  struct Job {
    SequenceHandle sequence;
    std::shared_ptr<TreeMasks> masks;
  };

  void MakeOneMore(Job job);

  const Done done_;
  WorkQueue<Job> queue_;
};

}  // namespace arborist::verifier
