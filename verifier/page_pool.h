#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace arborist::verifier {

class PagePool;

// The pages of one sequence: its logical row i lies in physical page table()[i / 64]. The pages go back to
// the pool in the destructor, so they return however a sequence ends; one that others read too when the last
// of them goes. The pool outlives it.
class SequencePages {
 public:
  SequencePages() = default;
  ~SequencePages() { Release(); }
  SequencePages(SequencePages&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), table_(std::exchange(other.table_, {})) {}
  SequencePages& operator=(SequencePages&& other) noexcept {
    if (this != &other) {
      Release();
      pool_ = std::exchange(other.pool_, nullptr);
      table_ = std::exchange(other.table_, {});
    }
    return *this;
  }

  std::span<const int32_t> table() const { return table_; }
  int64_t count() const { return static_cast<int64_t>(table_.size()); }

  // Keeps the first pages; shrinking frees the rest, growing takes from the pool. False, with nothing
  // changed, when the pool has too few.
  [[nodiscard]] bool Resize(int64_t pages);
  void Release();

  // Reads the first pages of another list of the same pool, whose rows are all written, as its own first
  // ones. This list is empty. Takes no page from the pool.
  void Share(const SequencePages& from, int64_t pages);
  // Whether no other list reads it, so that its rows may be written.
  bool OwnsAlone(int64_t page) const;

 private:
  friend class PagePool;
  explicit SequencePages(PagePool* pool) : pool_(pool) {}

  PagePool* pool_ = nullptr;
  std::vector<int32_t> table_;
};

// The pages of the cache, and how many lists read each. A sequence takes its worst case when it is admitted,
// so a running one never waits for a page. One thread at a time, except free_pages().
class PagePool {
 public:
  explicit PagePool(int64_t pages);

  // An empty list that grows from this pool.
  SequencePages NewSequence() { return SequencePages(this); }
  int64_t free_pages() const { return free_count_.load(std::memory_order_relaxed); }
  int64_t total_pages() const { return total_; }

 private:
  friend class SequencePages;
  int32_t Take();
  void TakeAgain(int32_t page);
  void Give(int32_t page);

  int64_t total_;
  std::vector<int32_t> free_;  // last in, first out: a page just read is likely still near
  std::vector<int32_t> readers_;
  std::atomic<int64_t> free_count_;
};

}  // namespace arborist::verifier
