#include "coordinator/cli/generate_flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/request_flags.h"

namespace arborist::coordinator {
namespace {

// Which field a prompt becomes depends on --chat and --message.
struct PromptFlags {
  std::vector<std::string> texts;
  bool chat = false;
  std::string system;
  bool has_system = false;
  v1::ChatMessages messages;
};

void AddMessage(const std::string& role, const std::string& content, v1::ChatMessages& messages) {
  v1::ChatMessage& message = *messages.add_messages();
  message.set_role(role);
  message.set_content(content);
}

absl::Status ParseMessage(const std::string& text, v1::ChatMessages& messages) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--message=", text, ", expected a role and its text, such as user:hello"));
  }
  AddMessage(text.substr(0, colon), text.substr(colon + 1), messages);
  return absl::OkStatus();
}

void AddPromptFlags(FlagSet& flags, v1::GenerateRequest& request, PromptFlags& prompt) {
  flags.Add("prompt", "the prompt", [&](const std::string& value) {
    prompt.texts.push_back(value);
    return CheckUtf8("prompt", value);
  });
  flags.Add("prompt-file", "file with the prompt", [&](const std::string& value) {
    ASSIGN_OR_RETURN(std::string text, ReadTextFile("prompt-file", value));
    prompt.texts.push_back(std::move(text));
    return absl::OkStatus();
  });
  flags.Add("token-ids", "the prompt as ids: 1,2,3", [&](const std::string& value) {
    return ParseIds("token-ids", value, *request.mutable_token_ids()->mutable_ids());
  });
  flags.AddSwitch("chat", "the prompt is a user's message", [&] { prompt.chat = true; });
  flags.Add("system", "the system's message, with --chat", [&](const std::string& value) {
    prompt.system = value;
    prompt.has_system = true;
    return CheckUtf8("system", value);
  });
  flags.Add("message", "ROLE:TEXT, a turn of a conversation instead of a prompt; repeated for each",
            [&](const std::string& value) {
              RETURN_IF_ERROR(CheckUtf8("message", value));
              return ParseMessage(value, prompt.messages);
            });
  flags.AddSwitch("omit-generation-prompt", "a conversation without the header of the assistant's turn",
                  [&] { prompt.messages.set_omit_generation_prompt(true); });
}

absl::Status SetPrompt(PromptFlags& prompt, v1::GenerateRequest& request) {
  const bool conversation = prompt.messages.messages_size() > 0;
  if (prompt.texts.size() + (request.has_token_ids() ? 1 : 0) + (conversation ? 1 : 0) != 1) {
    return absl::InvalidArgumentError(
        "expected exactly one of --prompt, --prompt-file, --token-ids and --message (which may be repeated)");
  }
  if (prompt.has_system && !prompt.chat) {
    return absl::InvalidArgumentError("--system, expected --chat beside it");
  }
  if (prompt.chat && prompt.texts.empty()) {
    return absl::InvalidArgumentError("--chat, expected --prompt or --prompt-file beside it");
  }
  if (prompt.messages.omit_generation_prompt() && !prompt.chat && !conversation) {
    return absl::InvalidArgumentError("--omit-generation-prompt, expected --chat or --message beside it");
  }
  if (prompt.chat) {
    if (prompt.has_system) {
      AddMessage("system", prompt.system, prompt.messages);
    }
    AddMessage("user", prompt.texts[0], prompt.messages);
  } else if (!prompt.texts.empty()) {
    request.set_text(prompt.texts[0]);
  }
  if (prompt.messages.messages_size() > 0) {
    *request.mutable_chat() = std::move(prompt.messages);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseGenerateFlags(int argc, const char* const* argv, GenerateFlags& out) {
  FlagSet flags(
      "usage: arborist generate (--prompt T | --prompt-file F | --token-ids 1,2,3 | --message ROLE:TEXT ...) "
      "[flags]");
  PromptFlags prompt;
  out.connection.AddFlags(flags);
  AddPromptFlags(flags, out.request, prompt);
  AddRequestFlags(flags, out.request);
  flags.AddSwitch("json", "print one JSON object instead of text, of an error too", [&] { out.json = true; });
  flags.AddSwitch("help", "this text", [&] { out.help = flags.Help(); });
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  return out.help.empty() ? SetPrompt(prompt, out.request) : absl::OkStatus();
}

}  // namespace arborist::coordinator
