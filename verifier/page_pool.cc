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

PagePool::PagePool(int64_t pages)
    : total_(pages), taken_(static_cast<size_t>(pages), false), free_count_(pages) {
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
  taken_[page] = true;
  free_count_.fetch_sub(1, std::memory_order_relaxed);
  return page;
}

void PagePool::Give(int32_t page) {
  Check(taken_[page], "a page goes back once");
  taken_[page] = false;
  free_.push_back(page);
  free_count_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace arborist::verifier
