#include "coordinator/request_codec.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "common/tokenizer/chat_template.h"

namespace arborist::coordinator {
namespace {

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr int kMaxStopIds = 64;
constexpr size_t kMaxClientIdBytes = 128;
constexpr size_t kMaxTextBytes = 16 << 20;
constexpr int kMaxMessages = 1024;
constexpr int kMaxTreeNodes = 255;

// The first field in use whose behaviour we lack.
absl::Status CheckSupported(const v1::GenerateRequest& request) {
  const std::pair<bool, const char*> later[] = {
      {request.min_tokens() != 0, "min_tokens"},
      {request.has_repetition_penalty() && request.repetition_penalty() != 1, "repetition_penalty"},
      {request.presence_penalty() != 0, "presence_penalty"},
      {request.frequency_penalty() != 0, "frequency_penalty"},
      {request.logit_bias_size() != 0, "logit_bias"},
      {request.allowed_token_ids_size() != 0, "allowed_token_ids"},
      {request.bad_words_size() != 0, "bad_words"},
      {request.n() != 0 && request.n() != 1, "n"},
      {request.log_probs(), "log_probs"},
      {request.top_log_probs() != 0, "top_log_probs"},
      {request.prompt_log_probs(), "prompt_log_probs"},
      {request.echo(), "echo"},
      {request.has_json_schema(), "json_schema"},
      {request.has_regex(), "regex"},
      {request.priority() != 0, "priority"},
      {request.media_size() != 0, "media"},
  };
  for (const auto& [in_use, field] : later) {
    if (in_use) {
      return UnsupportedField(field);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<float> Number(const char* field, bool given, float value, float fallback, float least,
                             float most) {
  if (!given) {
    return fallback;
  }
  if (!(value >= least && value <= most)) {  // NaN too
    return FieldError(field, absl::StrCat(value), absl::StrCat("a number in [", least, ", ", most, "]"));
  }
  return value;
}

absl::Status ResolveSampling(const v1::GenerateRequest& request, const VerifierFacts& model,
                             const GenerationDefaults& defaults, SamplingParameters& out) {
  ASSIGN_OR_RETURN(out.temperature, Number("temperature", request.has_temperature(), request.temperature(),
                                           defaults.temperature, 0, 100));
  ASSIGN_OR_RETURN(out.top_p, Number("top_p", request.has_top_p(), request.top_p(), defaults.top_p, 0, 1));
  if (out.top_p == 0) {
    return FieldError("top_p", "0", "a number in (0, 1]");
  }
  ASSIGN_OR_RETURN(out.min_p, Number("min_p", request.has_min_p(), request.min_p(), defaults.min_p, 0, 1));
  out.top_k = request.has_top_k() ? request.top_k() : std::min(defaults.top_k, model.vocabulary_size);
  if (out.top_k < 0 || out.top_k > model.vocabulary_size) {
    return FieldError("top_k", absl::StrCat(out.top_k),
                      absl::StrCat("an integer in [0, ", model.vocabulary_size, "]"));
  }
  if (request.has_seed()) {
    out.seed = request.seed();
  } else {
    std::random_device random;
    out.seed = (uint64_t{random()} << 32) | random();
  }
  if (request.has_max_tokens()) {
    out.max_tokens = request.max_tokens();
  } else {
    out.max_tokens =
        defaults.max_tokens > 0 ? std::min(defaults.max_tokens, model.context_length) : model.context_length;
  }
  if (out.max_tokens < 1 || out.max_tokens > model.context_length) {
    return FieldError("max_tokens", absl::StrCat(out.max_tokens),
                      absl::StrCat("an integer in [1, ", model.context_length, "]"));
  }
  return absl::OkStatus();
}

absl::Status ResolveStops(const v1::GenerateRequest& request, const VerifierFacts& model,
                          const GenerationDefaults& defaults, ResolvedRequest& out) {
  if (static_cast<size_t>(request.stop_size()) > kMaxStops) {
    return FieldError("stop", absl::StrCat(request.stop_size(), " strings"),
                      absl::StrCat("at most ", kMaxStops));
  }
  for (int i = 0; i < request.stop_size(); ++i) {
    const std::string& stop = request.stop(i);
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return FieldError(absl::StrCat("stop[", i, "]"), absl::StrCat(stop.size(), " bytes"),
                        absl::StrCat("1 to ", kMaxStopBytes, " bytes"));
    }
    out.stops.push_back(stop);
  }
  if (request.stop_ids_size() > kMaxStopIds) {
    return FieldError("stop_ids", absl::StrCat(request.stop_ids_size(), " ids"),
                      absl::StrCat("at most ", kMaxStopIds));
  }
  std::vector<TokenId>& ids = out.start.sampling.stop_ids;
  if (!request.ignore_eos()) {
    ids = defaults.eos_ids;
  }
  for (int i = 0; i < request.stop_ids_size(); ++i) {
    const int32_t id = request.stop_ids(i);
    if (id < 0 || id >= model.vocabulary_size) {
      return FieldError(absl::StrCat("stop_ids[", i, "]"), absl::StrCat(id),
                        absl::StrCat("an id in [0, ", model.vocabulary_size, ")"));
    }
    ids.push_back(TokenId{id});
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
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

absl::StatusOr<ResolvedRequest> ResolveRequest(const v1::GenerateRequest& request, const VerifierFacts& model,
                                               const std::string& model_name,
                                               const GenerationDefaults& defaults,
                                               const Tokenizer& tokenizer) {
  RETURN_IF_ERROR(CheckSupported(request));
  if (!request.model().empty() && request.model() != model_name) {
    return ErrorWithReason(absl::StatusCode::kNotFound, "UNKNOWN_MODEL",
                           absl::StrCat("model=", request.model(), ", expected ", model_name, " or nothing"));
  }
  if (request.client_request_id().size() > kMaxClientIdBytes) {
    return FieldError("client_request_id", absl::StrCat(request.client_request_id().size(), " bytes"),
                      absl::StrCat("at most ", kMaxClientIdBytes, " bytes"));
  }
  ResolvedRequest out;
  if (request.has_timeout()) {
    const google::protobuf::Duration& timeout = request.timeout();
    out.timeout = absl::Seconds(timeout.seconds()) + absl::Nanoseconds(timeout.nanos());
    if (out.timeout <= absl::ZeroDuration()) {
      return FieldError("timeout", absl::FormatDuration(out.timeout), "a duration > 0");
    }
  }
  RETURN_IF_ERROR(ResolveSampling(request, model, defaults, out.start.sampling));
  RETURN_IF_ERROR(ResolveStops(request, model, defaults, out));
  RETURN_IF_ERROR(ResolveSpeculation(request.speculation(), model, defaults, out.start));
  RETURN_IF_ERROR(ResolvePrompt(request, model, tokenizer, out.start.prompt));
  out.start.fingerprint = model.fingerprint;
  return out;
}

}  // namespace arborist::coordinator
