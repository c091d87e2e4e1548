#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/tokenizer/tokenizer.h"

namespace arborist {

struct ChatMessage {
  std::string role;  // user, assistant or system
  std::string content;
};

// Whether the tokenizer has the marks of the Kimi layout, the only one that is built in.
bool HasKimiChatMarks(const Tokenizer& tokenizer);

// Ids of a conversation in the Kimi layout,
//   <|im_user|>user<|im_middle|>CONTENT<|im_end|>...<|im_assistant|>assistant<|im_middle|>
// the last part, the start of the answer, if `start_answer`. Content is ordinary text, so it cannot forge a
// mark; no system turn is added and no beginning-of-sequence token. InvalidArgument names the message,
// FailedPrecondition says that the tokenizer has no such marks.
absl::StatusOr<std::vector<TokenId>> EncodeKimiChat(const Tokenizer& tokenizer,
                                                    std::span<const ChatMessage> messages, bool start_answer);

}  // namespace arborist
