#pragma once

#include "arborist/v1/tree.pb.h"
#include "common/tree/token_tree.h"

namespace arborist {

// Shape only: the rules of a tree are ValidateTokenTree's, which knows root and vocabulary.
void EncodeTree(const TokenTree& tree, v1::TokenTree& message);
TokenTree DecodeTree(const v1::TokenTree& message);

std::vector<TokenId> DecodeTokens(const google::protobuf::RepeatedField<int32_t>& ids);
void EncodeTokens(std::span<const TokenId> tokens, google::protobuf::RepeatedField<int32_t>& ids);

}  // namespace arborist
