#include "verifier/constraint_compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace arborist::verifier {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the verifier is shutting down"); }

}  // namespace

ConstraintCompiler::ConstraintCompiler(std::shared_ptr<const TokenVocabulary> vocabulary)
    : store_(std::move(vocabulary)) {}

void ConstraintCompiler::Compile(ConstraintSpec spec, Done done, Wanted wanted) {
  const std::string key = ConstraintStore::KeyOf(spec);
  std::unique_lock lock(mutex_);
  if (stopping_) {
    lock.unlock();
    done(ShuttingDown());
    return;
  }
  if (const auto job = jobs_.find(key); job != jobs_.end()) {
    job->second.waiters.push_back({std::move(done), std::move(wanted)});
    return;
  }
  if (auto kept = store_.Find(key); kept != nullptr) {
    lock.unlock();
    done(std::move(kept));
    return;
  }
  Cancelled cancelled;
  if (waiting_.size() >= kMostWaiting) {
    DropUnwanted(cancelled);
  }
  const bool has_room = waiting_.size() < kMostWaiting;
  if (has_room) {
    Job& job = jobs_[key];
    job.spec = std::move(spec);
    job.waiters.push_back({std::move(done), std::move(wanted)});
    waiting_.push_back(key);
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { Loop(); });
    }
    changed_.notify_one();
  }
  lock.unlock();
  Tell(cancelled);
  if (!has_room) {
    done(absl::ResourceExhaustedError(
        absl::StrCat(kMostWaiting, " constraints wait to be compiled, expected fewer")));
  }
}

void ConstraintCompiler::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ConstraintCompiler::DropUnwanted(Cancelled& cancelled) {
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    std::vector<Waiter>& waiters = jobs_[*at].waiters;
    std::erase_if(waiters, [&cancelled](Waiter& waiter) {
      if (waiter.wanted()) {
        return false;
      }
      cancelled.push_back(std::move(waiter.done));
      return true;
    });
    if (waiters.empty()) {
      jobs_.erase(*at);
      at = waiting_.erase(at);
    } else {
      ++at;
    }
  }
}

void ConstraintCompiler::Tell(const Cancelled& cancelled) {
  for (const Done& done : cancelled) {
    done(absl::CancelledError("nobody waits for the constraint any more"));
  }
}

void ConstraintCompiler::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    Cancelled cancelled;
    DropUnwanted(cancelled);
    const std::string key = waiting_.empty() ? "" : std::move(waiting_.front());
    Result result = ShuttingDown();
    std::vector<Waiter> waiters;
    const bool stopping = stopping_;
    if (!key.empty()) {
      waiting_.pop_front();
      if (!stopping) {
        const ConstraintSpec spec = jobs_[key].spec;
        lock.unlock();
        Tell(std::exchange(cancelled, {}));
        result = store_.Get(spec);
        lock.lock();
      }
      waiters = std::move(jobs_[key].waiters);
      jobs_.erase(key);
    }
    lock.unlock();
    Tell(cancelled);
    for (const Waiter& waiter : waiters) {
      waiter.done(result);
    }
    lock.lock();
    if (stopping && waiting_.empty()) {
      return;
    }
  }
}

}  // namespace arborist::verifier
