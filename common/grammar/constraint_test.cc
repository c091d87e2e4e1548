// What holds whatever the constraint is: bounds of memory and work, calls from several threads.
#include "common/grammar/constraint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "common/grammar/testing/walks.h"

namespace arborist {
namespace {

// Many states on a walk: which of the last twelve bytes were in [a-m].
constexpr char kManyStates[] = "[a-z]*[a-m][a-z]{12}";

// A state is which of the last 3000 bytes were in [a-m]: no two texts lead to the same one.
constexpr char kHostile[] = "[a-z]*[a-m][a-z]{3000}";

// All bytes, and words of up to 12 letters.
std::shared_ptr<const TokenVocabulary> Words() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  std::mt19937 random(7);
  for (int i = 0; i < 6000; ++i) {
    std::string word;
    for (size_t n = 2 + random() % 11; n > 0; --n) {
      word += static_cast<char>('a' + random() % 26);
    }
    bytes.push_back(word);
  }
  bytes.resize(bytes.size() + 1);  // a special one
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

std::shared_ptr<const Constraint> Make(const ConstraintSpec& spec,
                                       std::shared_ptr<const TokenVocabulary> vocabulary,
                                       std::shared_ptr<ConstraintMemory> memory) {
  auto made = Constraint::Compile(spec, std::move(vocabulary), std::move(memory));
  EXPECT_TRUE(made.ok()) << made.status();
  return *made;
}

std::vector<TokenId> RandomTokens(size_t count) {
  std::mt19937 random(3);
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<int32_t>(256 + random() % 6000)});
  }
  return tokens;
}

// The masks after each of the tokens, all of which are allowed.
std::vector<Constraint::Mask> MasksAlong(const Constraint& constraint, const std::vector<TokenId>& tokens) {
  std::vector<Constraint::Mask> masks;
  Constraint::State state = constraint.Start();
  for (const TokenId token : tokens) {
    const auto next = constraint.Advance(state, token);
    EXPECT_TRUE(next.has_value());
    state = *next;
    masks.push_back(*constraint.AllowedTokens(state));
  }
  return masks;
}

TEST(ConstraintBounds, WithTheLeastMemoryMasksAreTheSame) {
  const auto vocabulary = Words();
  const std::vector<TokenId> tokens = RandomTokens(12);
  const auto roomy = Make({.regex = kManyStates}, vocabulary, std::make_shared<ConstraintMemory>());
  const auto poor = Make({.regex = kManyStates}, vocabulary, std::make_shared<ConstraintMemory>(1));
  EXPECT_EQ(MasksAlong(*roomy, tokens), MasksAlong(*poor, tokens));
}

TEST(ConstraintBounds, EachKeepsItsPartOfTheMemory) {
  const auto vocabulary = testing::TestVocabulary();
  const auto memory = std::make_shared<ConstraintMemory>(size_t{64} << 20);
  EXPECT_EQ(memory->share(), size_t{64} << 20);
  {
    const auto one = Make({.regex = "a*"}, vocabulary, memory);
    const auto two = Make({.regex = "b*"}, vocabulary, memory);
    EXPECT_EQ(memory->share(), size_t{32} << 20);
  }
  EXPECT_EQ(memory->share(), size_t{64} << 20);
}

TEST(ConstraintBounds, CallsOfManyThreadsSayWhatOneSays) {
  const auto vocabulary = Words();
  const std::vector<TokenId> tokens = RandomTokens(8);
  const std::vector<Constraint::Mask> expected =
      MasksAlong(*Make({.regex = kManyStates}, vocabulary, std::make_shared<ConstraintMemory>()), tokens);
  // With so little memory states are forgotten while others are in the middle of a walk.
  const auto shared = Make({.regex = kManyStates}, vocabulary, std::make_shared<ConstraintMemory>(1));
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(MasksAlong(*shared, tokens), expected); });
  }
  threads.emplace_back([&] {
    std::mt19937 random(5);
    while (!done) {
      Constraint::State state = shared->Start();
      for (size_t i = 0; i < tokens.size(); ++i) {
        state = *shared->Advance(state, tokens[i]);
        EXPECT_EQ(shared->AllowsAny(state, expected[i], /*no_stops=*/false), true);
        std::this_thread::yield();
      }
    }
  });
  threads[0].join();
  threads[1].join();
  done = true;
  threads[2].join();
}

TEST(ConstraintBounds, TooMuchWorkForAMaskIsSaidByThatCallAlone) {
  const auto hostile = Make({.regex = kHostile}, Words(), std::make_shared<ConstraintMemory>());
  Constraint::State state = hostile->Start();
  for (const TokenId token : RandomTokens(300)) {
    const auto next = hostile->Advance(state, token);
    ASSERT_TRUE(next.has_value());
    state = *next;
  }
  const Constraint::State start = hostile->Start();
  EXPECT_EQ(hostile->AllowedTokens(state), nullptr);
  EXPECT_EQ(hostile->CachedTokens(state), nullptr);
  // Whoever stands elsewhere gets what it would have got before.
  const auto other = Make({.regex = kHostile}, Words(), std::make_shared<ConstraintMemory>());
  for (const TokenId token : {TokenId{'a'}, TokenId{'z'}, TokenId{'1'}}) {
    bool too_much = true;
    EXPECT_EQ(hostile->Advance(start, token, &too_much).has_value(),
              other->Advance(other->Start(), token).has_value());
    EXPECT_FALSE(too_much);
  }
  const auto mask = hostile->AllowedTokens(start);
  ASSERT_NE(mask, nullptr);
  EXPECT_EQ(*mask, *other->AllowedTokens(other->Start()));
  EXPECT_EQ(hostile->AllowsAny(state, {}, /*no_stops=*/false), true);
}

TEST(ConstraintBounds, ForbiddenStringsSeeTheCharacterThatThePromptLeavesUnfinished) {
  const auto constraint = Make({.bad_words = {"\xC3\xA9", "x", "no"}}, testing::TestVocabulary(),
                               std::make_shared<ConstraintMemory>());
  const auto allows = [&](const std::string& prompt, uint8_t next) {
    std::vector<TokenId> ids;
    for (const char byte : prompt) {
      ids.push_back(TokenId{static_cast<uint8_t>(byte)});
    }
    return constraint->Advance(constraint->Start(ids), TokenId{next}).has_value();
  };
  EXPECT_FALSE(allows("caf\xC3", 0xA9));
  EXPECT_FALSE(allows("\xC3", 0xA9));
  EXPECT_TRUE(allows("caf\xC3", 0xA8));
  EXPECT_TRUE(allows("caf", 0xA9));
  EXPECT_TRUE(allows("\xC3\xA8", 0xA9));
  EXPECT_TRUE(allows("n", 'o'));  // the prompt's own, whole
  const TokenId broken[] = {TokenId{0xC3}, testing::TestSpecial()};
  EXPECT_TRUE(constraint->Advance(constraint->Start(broken), TokenId{0xA9}).has_value());
}

TEST(ConstraintBounds, AMaskIsCachedOnceItWasAskedFor) {
  const auto constraint =
      Make({.regex = "[ab]*"}, testing::TestVocabulary(), std::make_shared<ConstraintMemory>());
  const Constraint::State state = constraint->Start();
  EXPECT_EQ(constraint->CachedTokens(state), nullptr);
  const auto mask = constraint->AllowedTokens(state);
  EXPECT_EQ(constraint->CachedTokens(state), mask);
  EXPECT_EQ(constraint->AllowedTokens(state), mask);
}

TEST(ConstraintBounds, AnyTokenIsAllowedExactlyWhereTheMaskHasOne) {
  const auto vocabulary = testing::TestVocabulary();
  const int32_t special = Raw(testing::TestSpecial());
  const int32_t stop = Raw(testing::TestStop());
  std::mt19937 random(9);
  for (const ConstraintSpec& base :
       {ConstraintSpec{.regex = "(ab|c)?"}, ConstraintSpec{.regex = "ab", .bad_words = {"b"}},
        ConstraintSpec{.bad_words = {"a", "bc"}}, ConstraintSpec{.json_schema = R"({"enum": [1, "a"]})"}}) {
    for (const bool with_stop : {false, true}) {
      ConstraintSpec spec = base;
      if (with_stop) {
        spec.stop_ids = {testing::TestStop(), TokenId{'c'}};  // one of them has text
      }
      const auto constraint = Make(spec, vocabulary, std::make_shared<ConstraintMemory>());
      for (int round = 0; round < 60; ++round) {
        std::optional<Constraint::State> state = constraint->Start();
        while (state.has_value()) {
          Constraint::Mask mask = *constraint->AllowedTokens(*state);
          std::vector<int32_t> allowed;
          for (int32_t token = 0; token < vocabulary->size(); ++token) {
            if ((mask[token / 32] >> (token % 32) & 1) != 0) {
              allowed.push_back(token);
            }
          }
          Constraint::Mask among(mask.size(), 0);
          for (int i = 0; i < 3; ++i) {  // some that matter and some that do not
            const int32_t some[] = {special, stop, 'a', 'b', 'c', '1', static_cast<int32_t>(random() % 256)};
            const int32_t token = some[random() % 7];
            among[token / 32] |= uint32_t{1} << (token % 32);
          }
          for (const bool no_stops : {false, true}) {
            const auto any = [&](bool all) {
              return std::any_of(allowed.begin(), allowed.end(), [&](int32_t token) {
                const bool is_stop = with_stop && (token == stop || token == 'c');
                return !(no_stops && is_stop) && (all || (among[token / 32] >> (token % 32) & 1) != 0);
              });
            };
            EXPECT_EQ(constraint->AllowsAny(*state, {}, no_stops), any(true));
            EXPECT_EQ(constraint->AllowsAny(*state, among, no_stops), any(false));
          }
          if (allowed.empty() || random() % 6 == 0) {
            break;
          }
          const int32_t token = allowed[random() % allowed.size()];
          state = with_stop && (token == stop || token == 'c') ? std::nullopt
                                                               : constraint->Advance(*state, TokenId{token});
        }
      }
    }
  }
}

}  // namespace
}  // namespace arborist
