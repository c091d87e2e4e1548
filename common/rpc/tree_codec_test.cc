#include "common/rpc/tree_codec.h"

#include <random>

#include "gtest/gtest.h"

namespace arborist {
namespace {

TEST(TreeCodecTest, RandomTreesComeBackEqualThroughTheWire) {
  std::mt19937 random(std::random_device{}());
  for (int run = 0; run < 200; ++run) {
    TokenTree tree = TokenTree::RootOnly(TokenId{static_cast<int32_t>(random() % 1000)});
    const int nodes = static_cast<int>(random() % 256);
    for (int i = 1; i <= nodes; ++i) {
      tree.token.push_back(TokenId{static_cast<int32_t>(random())});
      tree.parent.push_back(static_cast<int32_t>(random() % i));
      tree.score.push_back(-static_cast<float>(random()) / 7);
    }
    v1::TokenTree message;
    EncodeTree(tree, message);
    v1::TokenTree received;
    ASSERT_TRUE(received.ParseFromString(message.SerializeAsString()));
    const TokenTree back = DecodeTree(received);
    ASSERT_EQ(back.token, tree.token);
    ASSERT_EQ(back.parent, tree.parent);
    ASSERT_EQ(back.score, tree.score);
  }
}

TEST(TreeCodecTest, UnequalListsStayUnequalForTheValidator) {
  v1::TokenTree message;
  message.add_token_ids(1);
  message.add_token_ids(2);
  message.add_parents(-1);
  const TokenTree tree = DecodeTree(message);
  EXPECT_FALSE(ValidateTokenTree(tree, TokenId{1}, {.vocab_size = 10}).ok());
}

}  // namespace
}  // namespace arborist
