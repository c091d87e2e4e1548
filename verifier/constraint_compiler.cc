#include "verifier/constraint_compiler.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace arborist::verifier {
namespace {

absl::Status ShuttingDown() { return absl::UnavailableError("the verifier is shutting down"); }

}  // namespace

ConstraintCompiler::ConstraintCompiler(std::shared_ptr<const TokenVocabulary> vocabulary)
    : store_(std::move(vocabulary)), queue_([this](const std::string& key) { CompileOne(key); }) {}

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
  if (queue_.size() >= kMostWaiting) {
    DropUnwanted(cancelled);
  }
  const bool has_room = queue_.size() < kMostWaiting;
  if (has_room) {
    Job& job = jobs_[key];
    job.spec = std::move(spec);
    job.waiters.push_back({std::move(done), std::move(wanted)});
    queue_.Put(key);
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
  }
  for (const std::string& key : queue_.Stop()) {
    End(key, ShuttingDown());
  }
}

bool ConstraintCompiler::StillWanted(const std::string& key, Cancelled& cancelled) {
  std::vector<Waiter>& waiters = jobs_[key].waiters;
  std::erase_if(waiters, [&cancelled](Waiter& waiter) {
    if (waiter.wanted()) {
      return false;
    }
    cancelled.push_back(std::move(waiter.done));
    return true;
  });
  if (waiters.empty()) {
    jobs_.erase(key);
    return false;
  }
  return true;
}

void ConstraintCompiler::DropUnwanted(Cancelled& cancelled) {
  queue_.DropIf([&](const std::string& key) { return !StillWanted(key, cancelled); });
}

void ConstraintCompiler::Tell(const Cancelled& cancelled) {
  for (const Done& done : cancelled) {
    done(absl::CancelledError("nobody waits for the constraint any more"));
  }
}

void ConstraintCompiler::End(const std::string& key, const Result& result) {
  std::vector<Waiter> waiters;
  {
    const std::lock_guard lock(mutex_);
    waiters = std::move(jobs_[key].waiters);
    jobs_.erase(key);
  }
  for (const Waiter& waiter : waiters) {
    waiter.done(result);
  }
}

void ConstraintCompiler::CompileOne(const std::string& key) {
  Cancelled cancelled;
  ConstraintSpec spec;
  bool wanted = false, stopping = false;
  {
    const std::lock_guard lock(mutex_);
    DropUnwanted(cancelled);
    wanted = StillWanted(key, cancelled);
    stopping = stopping_;
    if (wanted) {
      spec = jobs_[key].spec;
    }
  }
  Tell(cancelled);
  if (wanted) {
    End(key, stopping ? Result(ShuttingDown()) : store_.Get(spec));
  }
}

}  // namespace arborist::verifier
