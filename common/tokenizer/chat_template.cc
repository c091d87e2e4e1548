#include "common/tokenizer/chat_template.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

constexpr std::string_view kMiddle = "<|im_middle|>";
constexpr std::string_view kEnd = "<|im_end|>";

std::string RoleMark(const std::string& role) { return absl::StrCat("<|im_", role, "|>"); }

bool IsRole(const std::string& role) { return role == "user" || role == "assistant" || role == "system"; }

absl::Status AppendText(const Tokenizer& tokenizer, const std::string& text, std::vector<TokenId>& ids) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> piece, tokenizer.Encode(text, SpecialText::kAsText));
  ids.insert(ids.end(), piece.begin(), piece.end());
  return absl::OkStatus();
}

// A turn up to where its content begins.
absl::Status AppendOpening(const Tokenizer& tokenizer, const std::string& role, std::vector<TokenId>& ids) {
  ids.push_back(*tokenizer.FindAdded(RoleMark(role)));
  RETURN_IF_ERROR(AppendText(tokenizer, role, ids));
  ids.push_back(*tokenizer.FindAdded(kMiddle));
  return absl::OkStatus();
}

}  // namespace

bool HasKimiChatMarks(const Tokenizer& tokenizer) {
  for (const char* role : {"user", "assistant", "system"}) {
    if (!tokenizer.FindAdded(RoleMark(role)).has_value()) {
      return false;
    }
  }
  return tokenizer.FindAdded(kMiddle).has_value() && tokenizer.FindAdded(kEnd).has_value();
}

absl::StatusOr<std::vector<TokenId>> EncodeKimiChat(const Tokenizer& tokenizer,
                                                    std::span<const ChatMessage> messages,
                                                    bool start_answer) {
  if (!HasKimiChatMarks(tokenizer)) {
    return absl::FailedPreconditionError(
        "messages cannot be used: the tokenizer lacks <|im_user|>, <|im_assistant|>, <|im_system|>, "
        "<|im_middle|> "
        "or <|im_end|>, expected a model with the Kimi chat layout, or text or token_ids instead");
  }
  std::vector<TokenId> ids;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!IsRole(message.role)) {
      return absl::InvalidArgumentError(
          absl::StrCat("messages[", i, "].role=", message.role, ", expected user, assistant or system"));
    }
    RETURN_IF_ERROR(AppendOpening(tokenizer, message.role, ids));
    RETURN_IF_ERROR(AppendText(tokenizer, message.content, ids));
    ids.push_back(*tokenizer.FindAdded(kEnd));
  }
  if (start_answer) {
    RETURN_IF_ERROR(AppendOpening(tokenizer, "assistant", ids));
  }
  return ids;
}

}  // namespace arborist
