#include "verifier/page_pool.h"

#include "common/base/check.h"

namespace arborist::verifier {

bool SequencePages::Resize(int64_t pages) {
  Check(pool_ != nullptr && pages >= 0, "pages grow from the pool that made them");
  if (pages - count() > pool_->free_pages()) {
    return false;
  }
  while (count() > pages) {
    pool_->Give(table_.back());
    table_.pop_back();
  }
  table_.reserve(static_cast<size_t>(pages));
  while (count() < pages) {
    table_.push_back(pool_->Take());
  }
  return true;
}

void SequencePages::Release() {
  while (!table_.empty()) {
    pool_->Give(table_.back());
    table_.pop_back();
  }
}

void SequencePages::Share(const SequencePages& from, int64_t pages) {
  Check(pool_ != nullptr && pool_ == from.pool_ && table_.empty(), "an empty list shares pages of its pool");
  Check(pages >= 0 && pages <= from.count(), "shared pages are there");
  table_.assign(from.table_.begin(), from.table_.begin() + pages);
  for (const int32_t page : table_) {
    pool_->TakeAgain(page);
  }
}

bool SequencePages::OwnsAlone(int64_t page) const {
  Check(page >= 0 && page < count(), "a page of this sequence");
  return pool_->readers_[table_[page]] == 1;
}

PagePool::PagePool(int64_t pages)
    : total_(pages), readers_(static_cast<size_t>(pages), 0), free_count_(pages) {
  Check(pages > 0, "a pool has pages");
  free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page) {
    free_.push_back(static_cast<int32_t>(page));
  }
}

int32_t PagePool::Take() {
  Check(!free_.empty(), "the caller has counted the free pages");
  const int32_t page = free_.back();
  free_.pop_back();
  readers_[page] = 1;
  free_count_.fetch_sub(1, std::memory_order_relaxed);
  return page;
}

void PagePool::TakeAgain(int32_t page) {
  Check(readers_[page] > 0, "a shared page is somebody's");
  ++readers_[page];
}

void PagePool::Give(int32_t page) {
  Check(readers_[page] > 0, "a page goes back once for each that reads it");
  if (--readers_[page] > 0) {
    return;
  }
  free_.push_back(page);
  free_count_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace arborist::verifier
