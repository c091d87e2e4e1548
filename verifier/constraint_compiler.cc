#include "verifier/constraint_compiler.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace arborist::verifier {
namespace {

// Equal for equal specs only: every text with its length before it.
std::string KeyOf(const ConstraintSpec& spec) {
  std::string key;
  const auto add = [&key](const std::string& text) { absl::StrAppend(&key, text.size(), ":", text); };
  add(spec.json_schema);
  add(spec.regex);
  absl::StrAppend(&key, spec.bad_words.size(), ";");
  for (const std::string& word : spec.bad_words) {
    add(word);
  }
  std::vector<TokenId> stops = spec.stop_ids;
  std::sort(stops.begin(), stops.end());
  for (const TokenId stop : stops) {
    absl::StrAppend(&key, Raw(stop), ",");
  }
  return key;
}

}  // namespace

ConstraintCompiler::ConstraintCompiler(std::shared_ptr<const TokenVocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)) {}

void ConstraintCompiler::Compile(ConstraintSpec spec, Done done) {
  const std::string key = KeyOf(spec);
  std::unique_lock lock(mutex_);
  if (auto kept = Find(key); kept != nullptr) {
    lock.unlock();
    done(std::move(kept));
    return;
  }
  if (stopping_ || waiting_.size() >= kMostWaiting) {
    const absl::Status status = stopping_
                                    ? absl::UnavailableError("the verifier is shutting down")
                                    : absl::ResourceExhaustedError(absl::StrCat(
                                          kMostWaiting, " constraints wait to be compiled, expected fewer"));
    lock.unlock();
    done(status);
    return;
  }
  waiting_.emplace_back(std::move(spec), std::move(done));
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { Loop(); });
  }
  changed_.notify_one();
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

void ConstraintCompiler::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    auto [spec, done] = std::move(waiting_.front());
    waiting_.pop_front();
    const bool stopping = stopping_;
    lock.unlock();
    Result result = absl::UnavailableError("the verifier is shutting down");
    if (!stopping) {
      const std::string key = KeyOf(spec);
      lock.lock();
      auto kept = Find(key);  // of one that waited before
      lock.unlock();
      if (kept != nullptr) {
        result = std::move(kept);
      } else {
        result = Constraint::Compile(spec, vocabulary_, memory_);
        if (result.ok()) {
          lock.lock();
          Keep(key, *result);
          lock.unlock();
        }
      }
    }
    done(std::move(result));
    lock.lock();
  }
}

std::shared_ptr<const Constraint> ConstraintCompiler::Find(const std::string& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return nullptr;
  }
  if (!found->second->second->status().ok()) {  // it was too much work
    kept_.erase(found->second);
    by_key_.erase(found);
    return nullptr;
  }
  kept_.splice(kept_.begin(), kept_, found->second);
  return found->second->second;
}

// The oldest that nobody uses goes.
void ConstraintCompiler::Keep(const std::string& key, std::shared_ptr<const Constraint> constraint) {
  kept_.emplace_front(key, std::move(constraint));
  by_key_[key] = kept_.begin();
  for (auto at = kept_.end(); kept_.size() > kMostKept && at != std::next(kept_.begin());) {
    --at;
    if (at->second.use_count() == 1) {
      by_key_.erase(at->first);
      at = kept_.erase(at);
    }
  }
}

}  // namespace arborist::verifier
