// A forward pass allocates nothing: this program's operator new counts.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "verifier/model/testing/golden_model.h"

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

namespace arborist::verifier {
namespace {

TEST(ModelAllocation, AForwardPassAllocatesNothing) {
  for (const std::string& target : testing::kGoldenTargets) {
    const testing::Golden golden = testing::ReadGolden(target);
    const auto harness =
        testing::Harness::Make({.directory = testing::GoldenDirectory(target), .threads = 2});
    ASSERT_TRUE(harness.ok()) << harness.status();
    for (const int rows : {static_cast<int>(golden.tokens.size()), 1, 9}) {
      std::vector<testing::Node> nodes;
      for (int i = 0; i < rows; ++i) {
        nodes.push_back({golden.tokens[i], i - 1});
      }
      const StepBatch& batch = (*harness)->Fill(nodes);
      const int64_t before = allocations.load();
      const auto result = (*harness)->model().Forward(batch, (*harness)->planes());
      const int64_t made = allocations.load() - before;
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(made, 0) << target << ", " << rows << " rows";
    }
  }
}

TEST(ModelAllocation, TheCounterCounts) {
  const int64_t before = allocations.load();
  std::vector<float> some(1000);
  EXPECT_GT(allocations.load(), before) << some.size();
}

}  // namespace
}  // namespace arborist::verifier
