#include "verifier/constraint_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <random>
#include <string>

#include "verifier/mask_maker.h"
#include "verifier/testing/constraint_cases.h"

namespace arborist::verifier {
namespace {

using testing::HasSubstr;

std::vector<TokenId> Ids(const std::string& text) {
  std::vector<TokenId> ids;
  for (const char byte : text) {
    for (int32_t id = 0; id < kSmallVocabulary; ++id) {
      if (SmallVocabulary()->bytes(id) == std::string(1, byte)) {
        ids.push_back(TokenId{id});
      }
    }
  }
  return ids;
}

std::shared_ptr<const ConstraintRules> Rules(const ConstraintSpec& spec,
                                             const std::vector<TokenId>& allowed = {}, int min_tokens = 0) {
  OpenArgs args;
  args.constraint = CompileSmall(spec);
  args.controls.allowed_token_ids = allowed;
  args.controls.min_tokens = min_tokens;
  return RulesOf(args, kSmallVocabulary);
}

bool Has(const uint32_t* mask, TokenId token) {
  return (mask[Raw(token) / 32] >> (Raw(token) % 32) & 1) != 0;
}

struct Tree {
  std::vector<TokenId> token;
  std::vector<int32_t> parent;
};

Tree RandomTree(int nodes, std::mt19937& random) {
  Tree tree{{TokenId{0}}, {-1}};
  while (static_cast<int>(tree.token.size()) < nodes) {
    tree.parent.push_back(static_cast<int32_t>(random() % tree.token.size()));
    tree.token.push_back(TokenId{static_cast<int32_t>(random() % kSmallVocabulary)});
  }
  return tree;
}

constexpr int kLongWords = 6;

// Letters, thousands of words, and at the end some of 500 letters, half of which are in [a-m].
std::shared_ptr<const TokenVocabulary> HostileVocabulary() {
  std::mt19937 random(7);
  const auto word = [&random](size_t letters) {
    std::string text;
    for (; letters > 0; --letters) {
      text += static_cast<char>('a' + random() % 26);
    }
    return text;
  };
  std::vector<std::string> bytes;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    bytes.emplace_back(1, letter);
  }
  for (int i = 0; i < 6000; ++i) {
    bytes.push_back(word(2 + random() % 11));
  }
  for (int i = 0; i < kLongWords; ++i) {
    bytes.push_back(word(500));
  }
  return std::make_shared<const TokenVocabulary>(std::move(bytes));
}

TEST(ConstraintMasks, EveryNodeHasTheMaskOfItsOwnPath) {
  std::mt19937 random(3);
  for (const ConstraintCase& with : ConstraintCases()) {
    const auto constraint = CompileSmall(with.spec);
    for (int round = 0; round < 20; ++round) {
      ConstraintMasks masks(Rules(with.spec));
      Constraint::State state = constraint->Start();
      for (int i = static_cast<int>(random() % 6); i > 0; --i) {  // some output
        std::vector<TokenId> allowed;
        const auto mask = constraint->AllowedTokens(state);
        for (int32_t id = 0; id < kSmallVocabulary; ++id) {
          if (Has(mask->data(), TokenId{id}) && id != Raw(kSmallStop)) {
            allowed.push_back(TokenId{id});
          }
        }
        if (allowed.empty()) {
          break;
        }
        const TokenId token = allowed[random() % allowed.size()];
        state = *constraint->Advance(state, token);
        masks.Commit(std::span(&token, 1));
      }
      const Tree tree = RandomTree(40, random);
      std::vector<const uint32_t*> mask(tree.token.size());
      masks.OfTree(tree.token, tree.parent, mask);
      std::vector<std::optional<Constraint::State>> states = {state};
      for (size_t node = 0; node < tree.token.size(); ++node) {
        if (node > 0) {
          const auto& parent = states[static_cast<size_t>(tree.parent[node])];
          states.push_back(parent.has_value() ? constraint->Advance(*parent, tree.token[node])
                                              : std::nullopt);
        }
        if (!states[node].has_value()) {
          EXPECT_EQ(mask[node], nullptr);
          continue;
        }
        const Constraint::Mask expected = *constraint->AllowedTokens(*states[node]);
        if (std::count(expected.begin(), expected.end(), 0u) == static_cast<ptrdiff_t>(expected.size())) {
          EXPECT_EQ(mask[node], nullptr);  // nothing may follow
        } else {
          ASSERT_NE(mask[node], nullptr);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), mask[node])) << with.name;
        }
      }
      EXPECT_TRUE(masks.status().ok());
    }
  }
}

TEST(ConstraintMasks, ARunEndsWhereNothingMayFollow) {
  const Tree chain{Ids("rabcd"), {-1, 0, 1, 2, 3}};
  const std::vector<int32_t> path = {0, 1, 2, 3};
  const TokenId d = Ids("d")[0], x = Ids("x")[0];
  const auto end = [&](const std::shared_ptr<const ConstraintRules>& rules, TokenId bonus) {
    ConstraintMasks masks(rules);
    std::vector<const uint32_t*> mask(chain.token.size());
    masks.OfTree(chain.token, chain.parent, mask);
    const ConstraintMasks::RunEnd end = masks.EndOfRun(path, bonus);
    EXPECT_EQ(end.unknown, 0);
    return end.over;
  };
  EXPECT_EQ(end(Rules({.regex = "[a-z]*"}), d), 0);
  EXPECT_EQ(end(Rules({.regex = "abc"}), x), 3);
  EXPECT_EQ(end(Rules({.regex = "abcd"}), d), 4);
  EXPECT_EQ(end(Rules({.regex = "ab"}), x), 2);  // what was accepted beyond does not count
  EXPECT_EQ(end(Rules({.regex = "abcd", .stop_ids = {kSmallStop}}), d), 0);  // the stop id may follow
  EXPECT_EQ(end(Rules({.regex = "abcd", .stop_ids = {kSmallStop}}, {}, /*min_tokens=*/4), d), 0);
  EXPECT_EQ(end(Rules({.regex = "abcd", .stop_ids = {kSmallStop}}, {}, /*min_tokens=*/5), d), 4);
  EXPECT_EQ(end(Rules({.regex = "abcd[ef]"}), d), 0);
  EXPECT_EQ(end(Rules({.regex = "abcd[ef]", .bad_words = {"de", "df"}}), d), 4);
  EXPECT_EQ(end(Rules({.regex = "abcd[ef]"}, Ids("abcd")), d), 4);  // what may follow is not allowed
}

TEST(ConstraintMasks, ANodeThatIsTooMuchWorkEndsTheRunThereAndARootThatIsEndsTheSequence) {
  const std::shared_ptr<const TokenVocabulary> vocabulary = HostileVocabulary();
  OpenArgs args;
  args.constraint = *Constraint::Compile({.regex = "[a-z]*[a-m][a-z]{3000}"}, vocabulary);
  const auto rules = RulesOf(args, vocabulary->size());
  const TokenId a{'a' - 'a'}, b{'b' - 'a'}, long_one{vocabulary->size() - 1};
  const Tree tree{{a, long_one, a, b}, {-1, 0, 1, 0}};
  ConstraintMasks masks(rules);
  std::vector<const uint32_t*> mask(tree.token.size());
  masks.OfTree(tree.token, tree.parent, mask);
  EXPECT_TRUE(masks.status().ok());  // no node fails the others
  EXPECT_NE(mask[0], nullptr);
  EXPECT_EQ(mask[1], nullptr);
  EXPECT_NE(mask[3], nullptr);
  const auto end = [&](std::vector<int32_t> path) { return masks.EndOfRun(path, a); };
  EXPECT_EQ(end({0, 1, 2}).unknown, 1);
  EXPECT_EQ(end({0, 1, 2}).over, 0);
  EXPECT_EQ(end({0, 1}).unknown, 1);
  EXPECT_EQ(end({0, 3}).unknown, 0);

  ConstraintMasks there(rules);
  there.Commit(std::span(&long_one, 1));
  ASSERT_TRUE(there.status().ok());
  there.OfTree(std::span(tree.token).first(1), std::span(tree.parent).first(1), std::span(mask).first(1));
  EXPECT_EQ(there.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(there.status().message()), HasSubstr("sequence.sampling.regex=(too much work"));
  ConstraintMasks other(rules);  // shares the constraint
  EXPECT_TRUE(other.CheckGoesOn().ok());
}

TEST(ConstraintMasks, AFewNodesThatAreTooMuchWorkEndTheTriesOfTheirTree) {
  const std::shared_ptr<const TokenVocabulary> vocabulary = HostileVocabulary();
  OpenArgs args;
  args.constraint = *Constraint::Compile({.regex = "[a-z]*[a-m][a-z]{3000}"}, vocabulary);
  Tree tree{{TokenId{0}}, {-1}};
  for (int i = 0; i < kLongWords; ++i) {
    tree.token.push_back(TokenId{vocabulary->size() - 1 - i});
    tree.parent.push_back(0);
  }
  tree.token.push_back(TokenId{1});
  tree.parent.push_back(0);
  const auto b = static_cast<int32_t>(tree.token.size()) - 1;
  ConstraintMasks masks(RulesOf(args, vocabulary->size()));
  std::vector<const uint32_t*> mask(tree.token.size());
  masks.OfTree(tree.token, tree.parent, mask);
  EXPECT_TRUE(masks.status().ok());
  EXPECT_EQ(mask[b], nullptr);  // not tried
  EXPECT_EQ(masks.EndOfRun(std::vector<int32_t>{0, b}, TokenId{0}).unknown, 1);
  masks.Commit(std::span(&tree.token[b], 1));
  masks.OfTree(std::span(tree.token).first(1), std::span(tree.parent).first(1), std::span(mask).first(1));
  EXPECT_NE(mask[0], nullptr);  // a tree of its own has its own tries
  EXPECT_TRUE(masks.status().ok());
}

TEST(ConstraintMasks, OutputThatViolatesTheConstraintIsNamed) {
  ConstraintMasks masks(Rules({.regex = "abc"}));
  masks.Commit(Ids("ax"));
  EXPECT_EQ(masks.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(masks.status().message()), HasSubstr("output_so_far[1]=23"));
}

TEST(MaskMaker, MakesThoseThatAreHeldInTurnsAndDropsTheOthers) {
  std::promise<SequenceHandle> done[2];
  int calls = 0;
  std::mutex mutex;
  MaskMaker maker([&](SequenceHandle sequence, const std::shared_ptr<TreeMasks>&) {
    const std::lock_guard lock(mutex);
    done[calls++].set_value(sequence);
  });
  std::mt19937 random(8);
  const auto rules = Rules({.regex = "[a-z]{60}"});
  const Tree tree = RandomTree(60, random);
  const auto make = [&] {
    return std::make_shared<TreeMasks>(rules, rules->constraint->Start(), 0, tree.token, tree.parent);
  };
  const auto held = make();
  EXPECT_FALSE(held->MakeCached());
  maker.Make(1, make());
  maker.Make(2, held);
  EXPECT_EQ(done[0].get_future().get(), 2);
  EXPECT_TRUE(held->MakeCached());
  const auto again = make();
  EXPECT_TRUE(again->MakeCached());  // cached now
  maker.Make(3, again);
  EXPECT_EQ(done[1].get_future().get(), 3);
  maker.Stop();
  maker.Make(4, again);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace arborist::verifier
