#include "verifier/page_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace arborist::verifier {
namespace {

TEST(PagePoolTest, PagesAreDistinctAndComeBackWhenTheirOwnerGoes) {
  PagePool pool(5);
  {
    SequencePages first = pool.NewSequence();
    SequencePages second = pool.NewSequence();
    ASSERT_TRUE(first.Resize(2));
    ASSERT_TRUE(second.Resize(3));
    std::set<int32_t> pages(first.table().begin(), first.table().end());
    pages.insert(second.table().begin(), second.table().end());
    EXPECT_EQ(pages, (std::set<int32_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(pool.free_pages(), 0);
  }
  EXPECT_EQ(pool.free_pages(), 5);
}

TEST(PagePoolTest, GrowingBeyondThePoolChangesNothing) {
  PagePool pool(3);
  SequencePages pages = pool.NewSequence();
  ASSERT_TRUE(pages.Resize(2));
  const int32_t first = pages.table()[0];
  EXPECT_FALSE(pages.Resize(4));
  EXPECT_EQ(pages.count(), 2);
  EXPECT_EQ(pages.table()[0], first);
  EXPECT_EQ(pool.free_pages(), 1);
}

TEST(PagePoolTest, ShrinkingKeepsTheFirstPages) {
  PagePool pool(4);
  SequencePages pages = pool.NewSequence();
  ASSERT_TRUE(pages.Resize(4));
  const int32_t first = pages.table()[0];
  ASSERT_TRUE(pages.Resize(1));
  EXPECT_EQ(pages.table()[0], first);
  EXPECT_EQ(pool.free_pages(), 3);
}

TEST(PagePoolTest, MovingHandsThePagesOver) {
  PagePool pool(4);
  SequencePages from = pool.NewSequence();
  ASSERT_TRUE(from.Resize(3));
  SequencePages to = pool.NewSequence();
  ASSERT_TRUE(to.Resize(1));
  to = std::move(from);
  EXPECT_EQ(to.count(), 3);
  EXPECT_EQ(pool.free_pages(), 1);
  to.Release();
  EXPECT_EQ(pool.free_pages(), 4);
}

}  // namespace
}  // namespace arborist::verifier
