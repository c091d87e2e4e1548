#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "verifier/testing/drive.h"
#include "verifier/verifier.h"

namespace arborist::verifier {

// Lets the first trees of all owners wait for one step: the step thread is held in the step of another's
// prompt until they are there. Counts rows. Whoever waits longer than a limit, since an owner or a step
// failed, goes on alone.
class FirstTreesTogether {
 public:
  explicit FirstTreesTogether(int owners) : owners_(owners) {}

  // For VerifierOptions::before_step.
  auto hook() {
    return
        [this](std::span<const StepTree> trees, std::span<const StepChunk> chunks, const KvPlanes&, Device&) {
          size_t rows = 0;
          for (const StepTree& tree : trees) {
            rows += tree.token.size();
          }
          for (const StepChunk& chunk : chunks) {
            rows += chunk.tokens.size();
          }
          size_t& most = chunks.empty() ? most_rows_of_trees_ : most_rows_with_prompts_;
          most = std::max(most, rows);
          if (all_asked_.exchange(false)) {
            Release();
            Wait([this] { return answered_ == owners_; });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they submit now
          }
        };
  }
  // For DecodeTrees: the drafter of one owner.
  Drafter Drafting(ReplayDrafter replay) {
    return [this, replay = std::move(replay), first = true](std::span<const TokenId> tokens) mutable {
      TokenTree tree = replay(tokens);
      if (std::exchange(first, false)) {
        Note([this] { ++asked_; });
        Wait([this] { return released_; });
        Note([this] { ++answered_; });
      }
      return tree;
    };
  }
  // Until all owners are asked for their first tree; the next step is to be the other's. False if they are
  // not.
  bool Await() {
    all_asked_ = Wait([this] { return asked_ == owners_; });
    return all_asked_;
  }
  // Nobody waits for the other's step any more.
  void Release() {
    Note([this] { released_ = true; });
  }

  // Once no more steps run.
  size_t most_rows_of_trees() const { return most_rows_of_trees_; }
  size_t most_rows_with_prompts() const { return most_rows_with_prompts_; }

 private:
  void Note(const std::function<void()>& what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }
  bool Wait(const std::function<bool()>& done) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             done);  // RecordingSink ends the process after 30
  }

  const int owners_;
  std::atomic<bool> all_asked_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  int asked_ = 0, answered_ = 0;
  bool released_ = false;
  size_t most_rows_of_trees_ = 0, most_rows_with_prompts_ = 0;
};

}  // namespace arborist::verifier
