// A round allocates nothing but the tree it returns: this program's operator new counts.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "drafter/testing/small_pair.h"

namespace {
std::atomic<int64_t> allocations{0};

void* Counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* block = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (block == nullptr) {
    std::abort();
  }
  return block;
}
}  // namespace

void* operator new(std::size_t size) { return Counted(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return Counted(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Counted(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace arborist::drafter {
namespace {

TEST(DFlashAllocationTest, ARoundAllocatesOnlyItsTree) {
  const testing::SmallPair pair;
  const auto context = pair.Context(40);
  ASSERT_TRUE(context->Propose({.nodes = 64}).ok());  // the first use of anything
  const auto tokens = pair.Tokens(40, 5);
  const auto features = pair.Features(39, 5);
  int64_t before = allocations.load();
  ASSERT_TRUE(context->AppendTokens(40, tokens).ok());
  ASSERT_TRUE(context->AppendFeatures(39, 5, features).ok());
  EXPECT_EQ(allocations.load() - before, 0);
  for (const float temperature : {0.0f, 1.0f}) {
    before = allocations.load();
    const absl::StatusOr<TokenTree> tree = context->Propose({.nodes = 64, .temperature = temperature});
    EXPECT_LE(allocations.load() - before, 3);  // its three vectors
    ASSERT_TRUE(tree.ok()) << tree.status();
  }
}

}  // namespace
}  // namespace arborist::drafter
