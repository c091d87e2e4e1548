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

TEST(PagePoolTest, ASharedPageComesBackWhenTheLastOfItsReadersGoes) {
  PagePool pool(4);
  SequencePages first = pool.NewSequence();
  ASSERT_TRUE(first.Resize(3));
  SequencePages second = pool.NewSequence();
  second.Share(first, 2);
  EXPECT_EQ(pool.free_pages(), 1);
  ASSERT_TRUE(second.Resize(3));
  EXPECT_EQ(pool.free_pages(), 0);
  EXPECT_EQ(second.table()[0], first.table()[0]);
  EXPECT_EQ(second.table()[1], first.table()[1]);
  EXPECT_NE(second.table()[2], first.table()[2]);
  first.Release();
  EXPECT_EQ(pool.free_pages(), 1);
  SequencePages third = pool.NewSequence();
  third.Share(second, 1);
  second = SequencePages();
  EXPECT_EQ(pool.free_pages(), 3);
  EXPECT_FALSE(third.Resize(5));
  EXPECT_EQ(third.count(), 1);
  ASSERT_TRUE(third.Resize(0));
  EXPECT_EQ(pool.free_pages(), 4);
}

TEST(PagePoolTest, APageIsItsSequencesOwnWhileNoOtherReadsIt) {
  PagePool pool(4);
  SequencePages first = pool.NewSequence();
  ASSERT_TRUE(first.Resize(2));
  EXPECT_TRUE(first.OwnsAlone(0));
  {
    SequencePages second = pool.NewSequence();
    second.Share(first, 1);
    EXPECT_FALSE(first.OwnsAlone(0));
    EXPECT_FALSE(second.OwnsAlone(0));
    EXPECT_TRUE(first.OwnsAlone(1));
  }
  EXPECT_TRUE(first.OwnsAlone(0));
}

TEST(PagePoolDeathTest, OnlyAnEmptyListOfTheSamePoolShares) {
  PagePool pool(4);
  PagePool other(4);
  SequencePages from = pool.NewSequence();
  ASSERT_TRUE(from.Resize(1));
  SequencePages full = pool.NewSequence();
  ASSERT_TRUE(full.Resize(1));
  SequencePages elsewhere = other.NewSequence();
  SequencePages empty = pool.NewSequence();
  EXPECT_DEATH(full.Share(from, 1), "an empty list");
  EXPECT_DEATH(elsewhere.Share(from, 1), "of its pool");
  EXPECT_DEATH(empty.Share(from, 2), "shared pages are there");
}

}  // namespace
}  // namespace arborist::verifier
