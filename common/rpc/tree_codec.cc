#include "common/rpc/tree_codec.h"

namespace arborist {

std::vector<TokenId> DecodeTokens(const google::protobuf::RepeatedField<int32_t>& ids) {
  std::vector<TokenId> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    tokens.push_back(TokenId{id});
  }
  return tokens;
}

void EncodeTokens(std::span<const TokenId> tokens, google::protobuf::RepeatedField<int32_t>& ids) {
  ids.Reserve(ids.size() + static_cast<int>(tokens.size()));
  for (const TokenId token : tokens) {
    ids.AddAlreadyReserved(Raw(token));
  }
}

void EncodeTree(const TokenTree& tree, v1::TokenTree& message) {
  EncodeTokens(tree.token, *message.mutable_token_ids());
  message.mutable_parents()->Add(tree.parent.begin(), tree.parent.end());
  message.mutable_scores()->Add(tree.score.begin(), tree.score.end());
}

TokenTree DecodeTree(const v1::TokenTree& message) {
  return {.token = DecodeTokens(message.token_ids()),
          .parent = {message.parents().begin(), message.parents().end()},
          .score = {message.scores().begin(), message.scores().end()}};
}

}  // namespace arborist
