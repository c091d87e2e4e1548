#include "coordinator/request_codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "common/tokenizer/chat_template.h"
#include "coordinator/sampling_codec.h"

namespace arborist::coordinator {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxClientIdBytes = 128;
constexpr size_t kMaxTextBytes = 16 << 20;
constexpr int kMaxMessages = 1024;
constexpr int kMaxTreeNodes = 255;

absl::Status RefuseMedia(const v1::GenerateRequest& request) {
  if (request.media_size() == 0) {
    return absl::OkStatus();
  }
  const std::string& type = request.media(0).mime_type();
  return UnsupportedField("media",
                          absl::StrCat(request.media_size(), " (", type.empty() ? "no mime_type" : type, ")"),
                          "none: no model served here takes images or other media");
}

absl::Status CheckClientId(const std::string& id) {
  if (id.size() > kMaxClientIdBytes) {
    return FieldError("client_request_id", absl::StrCat(id.size(), " bytes"),
                      absl::StrCat("at most ", kMaxClientIdBytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status ResolveTimeout(const v1::GenerateRequest& request, const RequestLimits& limits,
                            ResolvedRequest& out) {
  if (!request.has_timeout()) {
    return absl::OkStatus();
  }
  const google::protobuf::Duration& timeout = request.timeout();
  out.timeout = absl::Seconds(timeout.seconds()) + absl::Nanoseconds(timeout.nanos());
  const bool valid = timeout.nanos() >= 0 && timeout.nanos() < 1'000'000'000;
  if (!valid || out.timeout <= absl::ZeroDuration() || out.timeout > limits.max_timeout) {
    return FieldError("timeout",
                      valid ? absl::FormatDuration(out.timeout)
                            : absl::StrCat(timeout.seconds(), "s and ", timeout.nanos(), " nanos"),
                      absl::StrCat("a duration > 0, at most ", absl::FormatDuration(limits.max_timeout)));
  }
  return absl::OkStatus();
}

absl::Status ResolvePriority(const v1::GenerateRequest& request, PathStart& out) {
  out.priority = request.priority();
  if (out.priority < -kMaxPriority || out.priority > kMaxPriority) {
    return FieldError("priority", absl::StrCat(out.priority),
                      absl::StrCat("an integer in [", -kMaxPriority, ", ", kMaxPriority, "]"));
  }
  return absl::OkStatus();
}

absl::Status ResolvePrompt(const v1::GenerateRequest& request, const VerifierFacts& model,
                           const Tokenizer& tokenizer, std::vector<TokenId>& prompt) {
  const char* field = "";
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText: {
      field = "text";
      if (request.text().size() > kMaxTextBytes) {
        return FieldError(field, absl::StrCat(request.text().size(), " bytes"),
                          absl::StrCat("at most ", kMaxTextBytes, " bytes"));
      }
      ASSIGN_OR_RETURN(prompt, tokenizer.EncodePrompt(request.text()));
      break;
    }
    case v1::GenerateRequest::kChat: {
      field = "chat";
      ASSIGN_OR_RETURN(prompt, EncodeChat(request.chat(), tokenizer));
      break;
    }
    case v1::GenerateRequest::kTokenIds:
      field = "token_ids";
      prompt = DecodeTokens(request.token_ids().ids());
      break;
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return FieldError("prompt", "nothing", "one of text, token_ids and chat");
  }
  if (prompt.empty() || prompt.size() >= static_cast<size_t>(model.context_length)) {
    return FieldError(field, absl::StrCat(prompt.size(), " tokens"),
                      absl::StrCat("1 to ", model.context_length - 1, " tokens"));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (Raw(prompt[i]) < 0 || Raw(prompt[i]) >= model.vocabulary_size) {
      return FieldError(absl::StrCat(field, "[", i, "]"), absl::StrCat(Raw(prompt[i])),
                        absl::StrCat("an id in [0, ", model.vocabulary_size, ")"));
    }
  }
  return absl::OkStatus();
}

absl::Status ResolveSpeculation(const v1::Speculation& speculation, const VerifierFacts& model,
                                const GenerationDefaults& defaults, PathStart& out) {
  switch (speculation.mode()) {
    case v1::SPECULATION_MODE_UNSPECIFIED:
      out.mode = defaults.mode;
      break;
    case v1::SPECULATION_MODE_AUTO:
      out.mode = Mode::kAuto;
      break;
    case v1::SPECULATION_MODE_TREE:
      out.mode = Mode::kTree;
      break;
    case v1::SPECULATION_MODE_CHAIN:
      out.mode = Mode::kChain;
      break;
    case v1::SPECULATION_MODE_OFF:
      out.mode = Mode::kOff;
      break;
    default:
      return FieldError("speculation.mode", absl::StrCat(static_cast<int>(speculation.mode())),
                        "AUTO, TREE, CHAIN or OFF");
  }
  const int32_t most = std::min(model.max_tree_nodes, kMaxTreeNodes);
  if (speculation.tree_nodes() < 0 || speculation.tree_nodes() > most) {
    return FieldError("speculation.tree_nodes", absl::StrCat(speculation.tree_nodes()),
                      absl::StrCat("an integer in [1, ", most, "], or 0 for the default"));
  }
  out.tree_nodes =
      speculation.tree_nodes() > 0 ? speculation.tree_nodes() : std::min(defaults.tree_nodes, most);
  if (out.mode == Mode::kOff || out.tree_nodes == 0) {  // a verifier without trees decodes plainly
    out.mode = Mode::kOff;
    out.tree_nodes = 0;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TokenId>> EncodeChat(const v1::ChatMessages& chat, const Tokenizer& tokenizer) {
  if (chat.messages_size() < 1 || chat.messages_size() > kMaxMessages) {
    return FieldError("chat.messages", absl::StrCat(chat.messages_size(), " messages"),
                      absl::StrCat("1 to ", kMaxMessages));
  }
  std::vector<ChatMessage> messages;
  for (int i = 0; i < chat.messages_size(); ++i) {
    messages.push_back({chat.messages(i).role(), chat.messages(i).content()});
  }
  if (!HasKimiChatMarks(tokenizer)) {
    return FieldError("chat", absl::StrCat(messages.size(), " messages"),
                      "text or token_ids: this model's tokenizer has no chat layout that is built in");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "user" && role != "assistant" && role != "system") {
      return FieldError(absl::StrCat("chat.messages[", i, "].role"), role, "user, assistant or system");
    }
  }
  return EncodeKimiChat(tokenizer, messages, !chat.omit_generation_prompt());
}

absl::StatusOr<int> ResolveSamples(const v1::GenerateRequest& request, const RequestLimits& limits) {
  if (request.n() < 0 || request.n() > limits.max_samples) {
    return FieldError("n", absl::StrCat(request.n()),
                      absl::StrCat("an integer in [1, ", limits.max_samples, "], or 0 for 1"));
  }
  return std::max(request.n(), 1);
}

absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request, const VerifierFacts& model,
                                               const std::string& model_name,
                                               const GenerationDefaults& defaults,
                                               const RequestLimits& limits, const Tokenizer& tokenizer) {
  RETURN_IF_ERROR(RefuseMedia(request));
  if (!request.model().empty() && request.model() != model_name) {
    return ErrorWithReason(absl::StatusCode::kNotFound, "UNKNOWN_MODEL",
                           absl::StrCat("model=", request.model(), ", expected ", model_name, " or nothing"));
  }
  ResolvedRequest out;
  RETURN_IF_ERROR(CheckClientId(request.client_request_id()));
  ASSIGN_OR_RETURN(out.samples, ResolveSamples(request, limits));
  RETURN_IF_ERROR(ResolveTimeout(request, limits, out));
  RETURN_IF_ERROR(ResolvePriority(request, out.start));
  RETURN_IF_ERROR(ResolveSampling(request, model, defaults, out.start.sampling));
  RETURN_IF_ERROR(CheckStrings("stop", request.stop(), kMaxStops, kMaxStopBytes));
  out.text.stops.assign(request.stop().begin(), request.stop().end());
  out.text.echo = request.echo();
  RETURN_IF_ERROR(ResolveSpeculation(request.speculation(), model, defaults, out.start));
  RETURN_IF_ERROR(ResolvePrompt(request, model, tokenizer, out.start.prompt));
  out.start.fingerprint = model.fingerprint;
  return out;
}

}  // namespace arborist::coordinator
