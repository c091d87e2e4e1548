#include "common/grammar/constraint_store.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace arborist {

ConstraintStore::ConstraintStore(std::shared_ptr<const TokenVocabulary> vocabulary,
                                 std::shared_ptr<ConstraintMemory> memory, size_t unused_bytes)
    : vocabulary_(std::move(vocabulary)), memory_(std::move(memory)), unused_bytes_(unused_bytes) {}

// Every text with its length before it.
std::string ConstraintStore::KeyOf(const ConstraintSpec& spec) {
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

std::shared_ptr<const Constraint> ConstraintStore::Find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  return FindKept(key);
}

ConstraintStore::Result ConstraintStore::Get(const ConstraintSpec& spec) {
  const std::string key = KeyOf(spec);
  std::unique_lock lock(mutex_);
  made_.wait(lock, [&] { return !in_the_making_.contains(key); });
  if (auto kept = FindKept(key); kept != nullptr) {
    return kept;
  }
  in_the_making_.insert(key);
  lock.unlock();
  Result result = Constraint::Compile(spec, vocabulary_, memory_);
  if (result.status().code() == absl::StatusCode::kResourceExhausted) {
    lock.lock();
    Trim(0);  // what nobody uses makes room
    lock.unlock();
    result = Constraint::Compile(spec, vocabulary_, memory_);
  }
  lock.lock();
  in_the_making_.erase(key);
  if (result.ok()) {
    kept_.push_front({key, *result});
    by_key_[kept_.front().key] = kept_.begin();
    Trim(unused_bytes_);
  }
  made_.notify_all();
  return result;
}

std::shared_ptr<const Constraint> ConstraintStore::FindKept(const std::string& key) {
  const auto found = by_key_.find(key);
  std::shared_ptr<const Constraint> constraint;
  if (found != by_key_.end()) {
    constraint = found->second->constraint;
    kept_.splice(kept_.begin(), kept_, found->second);
  }
  Trim(unused_bytes_);  // others may have come out of use
  return constraint;
}

void ConstraintStore::Trim(size_t unused_bytes) {
  size_t bytes = 0;
  size_t unused = 0;
  for (auto at = kept_.begin(); at != kept_.end();) {
    const bool is_used = at->constraint.use_count() > 1;
    if (!is_used) {
      bytes += at->constraint->bytes() + at->key.size();
    }
    if (!is_used && (bytes > unused_bytes || ++unused > kMostUnused)) {
      by_key_.erase(at->key);
      at = kept_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace arborist
