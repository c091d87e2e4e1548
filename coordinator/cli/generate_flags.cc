#include "coordinator/cli/generate_flags.h"

#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace arborist::coordinator {
namespace {

absl::StatusOr<std::string> ReadPromptFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prompt-file=", path, ", expected a file that is not empty"));
  }
  return text.str();
}

absl::Status ParseIds(const std::string& text, v1::TokenIds& out) {
  for (const auto& word : absl::StrSplit(text, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--token-ids has ", word, ", expected integers and commas"));
    }
    out.add_ids(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::SpeculationMode> ParseMode(const std::string& text) {
  const std::pair<const char*, v1::SpeculationMode> modes[] = {{"auto", v1::SPECULATION_MODE_AUTO},
                                                               {"tree", v1::SPECULATION_MODE_TREE},
                                                               {"chain", v1::SPECULATION_MODE_CHAIN},
                                                               {"off", v1::SPECULATION_MODE_OFF}};
  for (const auto& [name, mode] : modes) {
    if (text == name) {
      return mode;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--speculation=", text, ", expected auto, tree, chain or off"));
}

// Prompts given by text; which field they become depends on --chat.
struct PromptFlags {
  std::vector<std::string> texts;
  bool chat = false;
  std::string system;
  bool has_system = false;
};

void AddPromptFlags(FlagSet& flags, v1::GenerateRequest& request, PromptFlags& prompt) {
  flags.Add("prompt", "the prompt", [&](const std::string& value) {
    prompt.texts.push_back(value);
    return CheckUtf8("prompt", value);
  });
  flags.Add("prompt-file", "file with the prompt", [&](const std::string& value) {
    ASSIGN_OR_RETURN(std::string text, ReadPromptFile(value));
    RETURN_IF_ERROR(CheckUtf8("prompt-file", text));
    prompt.texts.push_back(std::move(text));
    return absl::OkStatus();
  });
  flags.Add("token-ids", "the prompt as ids: 1,2,3",
            [&](const std::string& value) { return ParseIds(value, *request.mutable_token_ids()); });
  flags.AddSwitch("chat", "the prompt is a user's message", [&] { prompt.chat = true; });
  flags.Add("system", "the system's message, with --chat", [&](const std::string& value) {
    prompt.system = value;
    prompt.has_system = true;
    return CheckUtf8("system", value);
  });
}

absl::Status SetPrompt(const PromptFlags& prompt, v1::GenerateRequest& request) {
  if (prompt.texts.size() + (request.has_token_ids() ? 1 : 0) != 1) {
    return absl::InvalidArgumentError("expected exactly one of --prompt, --prompt-file and --token-ids");
  }
  if (prompt.has_system && !prompt.chat) {
    return absl::InvalidArgumentError("--system, expected --chat beside it");
  }
  if (!prompt.chat) {
    if (!prompt.texts.empty()) {
      request.set_text(prompt.texts[0]);
    }
    return absl::OkStatus();
  }
  if (prompt.texts.empty()) {
    return absl::InvalidArgumentError("--chat, expected --prompt or --prompt-file beside it");
  }
  if (prompt.has_system) {
    v1::ChatMessage& message = *request.mutable_chat()->add_messages();
    message.set_role("system");
    message.set_content(prompt.system);
  }
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content(prompt.texts[0]);
  return absl::OkStatus();
}

template <typename Set>
void AddFloat(FlagSet& flags, const std::string& name, const std::string& help, Set set) {
  flags.Add(name, help, [name, set](const std::string& value) {
    float number = 0;
    if (!absl::SimpleAtof(value, &number)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value, ", expected a number"));
    }
    set(number);
    return absl::OkStatus();
  });
}

void AddSamplingFlags(FlagSet& flags, v1::GenerateRequest& request) {
  flags.AddInteger("max-tokens", "the most tokens of the answer", INT32_MIN, INT32_MAX,
                   [&](int64_t value) { request.set_max_tokens(static_cast<int32_t>(value)); });
  AddFloat(flags, "temperature", "0 is greedy", [&](float value) { request.set_temperature(value); });
  AddFloat(flags, "top-p", "the smallest set with this mass", [&](float value) { request.set_top_p(value); });
  flags.AddInteger("top-k", "the best this many; 0 keeps all", INT32_MIN, INT32_MAX,
                   [&](int64_t value) { request.set_top_k(static_cast<int32_t>(value)); });
  AddFloat(flags, "min-p", "at least this share of the highest probability",
           [&](float value) { request.set_min_p(value); });
  flags.Add("seed", "makes the answer repeatable", [&](const std::string& value) {
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(value, &seed)) {
      return absl::InvalidArgumentError(absl::StrCat("--seed=", value, ", expected an integer in [0, 2^64)"));
    }
    request.set_seed(seed);
    return absl::OkStatus();
  });
  flags.Add("stop", "text that ends the answer; may be repeated", [&](const std::string& value) {
    request.add_stop(value);
    return CheckUtf8("stop", value);
  });
  flags.AddInteger("stop-id", "id that ends the answer; may be repeated", INT32_MIN, INT32_MAX,
                   [&](int64_t value) { request.add_stop_ids(static_cast<int32_t>(value)); });
  flags.AddSwitch("ignore-eos", "go on after the end-of-sequence ids", [&] { request.set_ignore_eos(true); });
}

}  // namespace

absl::Status ParseGenerateFlags(int argc, const char* const* argv, GenerateFlags& out) {
  FlagSet flags("usage: arborist generate (--prompt T | --prompt-file F | --token-ids 1,2,3) [flags]");
  PromptFlags prompt;
  v1::GenerateRequest& request = out.request;
  out.connection.AddFlags(flags);
  AddPromptFlags(flags, request, prompt);
  AddSamplingFlags(flags, request);
  flags.Add("speculation", "auto, tree, chain or off", [&](const std::string& value) {
    ASSIGN_OR_RETURN(const v1::SpeculationMode mode, ParseMode(value));
    request.mutable_speculation()->set_mode(mode);
    return absl::OkStatus();
  });
  flags.AddInteger("tree-nodes", "drafted nodes of a round", INT32_MIN, INT32_MAX, [&](int64_t value) {
    request.mutable_speculation()->set_tree_nodes(static_cast<int32_t>(value));
  });
  flags.Add("model", "name of the model", [&](const std::string& value) {
    request.set_model(value);
    return CheckUtf8("model", value);
  });
  flags.Add("client-request-id", "an id for the server's logs", [&](const std::string& value) {
    request.set_client_request_id(value);
    return CheckUtf8("client-request-id", value);
  });
  flags.AddSwitch("json", "print one JSON object instead of text", [&] { out.json = true; });
  flags.AddSwitch("help", "this text", [&] { out.help = flags.Help(); });
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  return out.help.empty() ? SetPrompt(prompt, request) : absl::OkStatus();
}

}  // namespace arborist::coordinator
