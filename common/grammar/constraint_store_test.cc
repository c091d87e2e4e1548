#include "common/grammar/constraint_store.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "common/grammar/testing/walks.h"

namespace arborist {
namespace {

// As large as forbidden words get, and each time others.
ConstraintSpec Large(uint32_t seed) {
  std::mt19937 random(seed);
  ConstraintSpec spec;
  for (size_t i = 0; i < ForbiddenStrings::kMaxStrings; ++i) {
    std::string& word = spec.bad_words.emplace_back();
    for (size_t n = 0; n < ForbiddenStrings::kMaxBytes; ++n) {
      word += static_cast<char>(random());
    }
  }
  return spec;
}

TEST(ConstraintStore, WhatNobodyUsesIsKeptWithinItsBytesTheLatestFirst) {
  const auto memory = std::make_shared<ConstraintMemory>();
  ConstraintStore store(testing::TestVocabulary(), memory, /*unused_bytes=*/size_t{4} << 20);
  std::vector<std::string> keys;
  for (uint32_t i = 0; i < 40; ++i) {
    keys.push_back(ConstraintStore::KeyOf(Large(i)));
    ASSERT_TRUE(store.Get(Large(i)).ok());
    EXPECT_LT(memory->compiled(), size_t{6} << 20);  // with the one that was just made
  }
  EXPECT_NE(store.Find(keys.back()), nullptr);
  EXPECT_EQ(store.Find(keys.front()), nullptr);
}

TEST(ConstraintStore, WhatCameOutOfUseGoesWhenAnotherIsLookedFor) {
  const auto memory = std::make_shared<ConstraintMemory>();
  ConstraintStore store(testing::TestVocabulary(), memory, /*unused_bytes=*/size_t{1} << 20);
  std::vector<std::shared_ptr<const Constraint>> used;
  for (uint32_t i = 0; i < 8; ++i) {
    used.push_back(*store.Get(Large(i)));
  }
  EXPECT_EQ(store.Find(ConstraintStore::KeyOf(Large(0))), used[0]);  // all stay while they are used
  const size_t all = memory->compiled();
  used.clear();
  EXPECT_EQ(store.Find("no such key"), nullptr);
  EXPECT_LT(memory->compiled(), all / 2);
}

TEST(ConstraintStore, BeyondTheTotalUnusedOnesMakeRoomAndUsedOnesRefuseTheNext) {
  const size_t one = [] {
    const auto memory = std::make_shared<ConstraintMemory>();
    const auto constraint = Constraint::Compile(Large(0), testing::TestVocabulary(), memory);
    EXPECT_GE((*constraint)->bytes(), memory->compiled());
    return memory->compiled();
  }();
  const auto memory = std::make_shared<ConstraintMemory>(ConstraintMemory::kDefaultBytes, 3 * one + one / 2);
  ConstraintStore store(testing::TestVocabulary(), memory);
  for (uint32_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(store.Get(Large(i)).ok()) << i;
  }
  std::vector<std::shared_ptr<const Constraint>> used;
  for (uint32_t i = 0; i < 3; ++i) {
    used.push_back(*store.Get(Large(i)));
  }
  EXPECT_EQ(store.Get(Large(3)).status().code(), absl::StatusCode::kResourceExhausted);
  used.pop_back();
  EXPECT_TRUE(store.Get(Large(3)).ok());
}

TEST(ConstraintStore, ThreadsThatAskForTheSameShareOne) {
  ConstraintStore store(testing::TestVocabulary());
  std::vector<std::shared_ptr<const Constraint>> made(6);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < made.size(); ++i) {
    threads.emplace_back([&, i] { made[i] = *store.Get({.regex = "[a-z ]{0,2000}"}); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& constraint : made) {
    EXPECT_EQ(constraint, made[0]);
  }
  EXPECT_NE(*store.Get({.regex = "[a-z ]{0,2001}"}), made[0]);
}

}  // namespace
}  // namespace arborist
