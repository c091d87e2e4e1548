#include "coordinator/cli/request_flags.h"

#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "coordinator/cli/connection.h"

namespace arborist::coordinator {
namespace {

absl::Status Mistake(const std::string& flag, const std::string& value, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ", expected ", expected));
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
  return Mistake("speculation", text, "auto, tree, chain or off");
}

template <typename Set>
void AddFloat(FlagSet& flags, const std::string& name, const std::string& help, Set set) {
  flags.Add(name, help, [name, set](const std::string& value) {
    float number = 0;
    if (!absl::SimpleAtof(value, &number)) {
      return Mistake(name, value, "a number");
    }
    set(number);
    return absl::OkStatus();
  });
}

template <typename Set>
void AddInt32(FlagSet& flags, const std::string& name, const std::string& help, Set set) {
  flags.AddInteger(name, help, INT32_MIN, INT32_MAX,
                   [set](int64_t value) { set(static_cast<int32_t>(value)); });
}

template <typename Set>
void AddUtf8(FlagSet& flags, const std::string& name, const std::string& help, Set set) {
  flags.Add(name, help, [name, set](const std::string& value) {
    RETURN_IF_ERROR(CheckUtf8(name, value));
    set(value);
    return absl::OkStatus();
  });
}

absl::Status AddBias(const std::string& text, v1::GenerateRequest& request) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  int32_t id = 0;
  float bias = 0;
  if (!absl::SimpleAtoi(parts.first, &id) || !absl::SimpleAtof(parts.second, &bias)) {
    return Mistake("logit-bias", text, "an id and a number, such as 17:-2.5");
  }
  v1::LogitBias& added = *request.add_logit_bias();
  added.set_token_id(id);
  added.set_bias(bias);
  return absl::OkStatus();
}

absl::Status AddMedium(const std::string& text, v1::GenerateRequest& request) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  RETURN_IF_ERROR(CheckUtf8("media", parts.first));
  std::ifstream file(parts.second, std::ios::binary);
  std::ostringstream data;
  if (!file || !(data << file.rdbuf())) {
    return Mistake("media", text, "a MIME type and a file that is not empty, such as image/png:a.png");
  }
  v1::Media& medium = *request.add_media();
  medium.set_mime_type(parts.first);
  medium.set_data(data.str());
  return absl::OkStatus();
}

void AddSamplingFlags(FlagSet& flags, v1::GenerateRequest& request) {
  AddFloat(flags, "temperature", "0 is greedy", [&](float value) { request.set_temperature(value); });
  AddFloat(flags, "top-p", "the smallest set with this mass", [&](float value) { request.set_top_p(value); });
  AddInt32(flags, "top-k", "the best this many; 0 keeps all",
           [&](int32_t value) { request.set_top_k(value); });
  AddFloat(flags, "min-p", "at least this share of the highest probability",
           [&](float value) { request.set_min_p(value); });
  flags.Add("seed", "makes the answer repeatable", [&](const std::string& value) {
    uint64_t seed = 0;
    if (!absl::SimpleAtoi(value, &seed)) {
      return Mistake("seed", value, "an integer in [0, 2^64)");
    }
    request.set_seed(seed);
    return absl::OkStatus();
  });
  AddFloat(flags, "repetition-penalty", "divides logits of tokens in prompt and answer; 1 changes nothing",
           [&](float value) { request.set_repetition_penalty(value); });
  AddFloat(flags, "presence-penalty", "subtracted once from logits of tokens in the answer",
           [&](float value) { request.set_presence_penalty(value); });
  AddFloat(flags, "frequency-penalty", "subtracted for each time that a token is in the answer",
           [&](float value) { request.set_frequency_penalty(value); });
  flags.Add("logit-bias", "ID:VALUE, added to that token's logit; may be repeated",
            [&](const std::string& value) { return AddBias(value, request); });
  flags.Add("allowed-ids", "only these tokens: 1,2,3; may be repeated", [&](const std::string& value) {
    return ParseIds("allowed-ids", value, *request.mutable_allowed_token_ids());
  });
}

// What the answer may be, and where it ends.
void AddAnswerFlags(FlagSet& flags, v1::GenerateRequest& request) {
  AddInt32(flags, "max-tokens", "the most tokens of the answer",
           [&](int32_t value) { request.set_max_tokens(value); });
  AddInt32(flags, "min-tokens", "no stop before this many tokens",
           [&](int32_t value) { request.set_min_tokens(value); });
  AddUtf8(flags, "stop", "text that ends the answer; may be repeated",
          [&](const std::string& value) { request.add_stop(value); });
  AddInt32(flags, "stop-id", "id that ends the answer; may be repeated",
           [&](int32_t value) { request.add_stop_ids(value); });
  flags.AddSwitch("ignore-eos", "go on after the end-of-sequence ids", [&] { request.set_ignore_eos(true); });
  AddUtf8(flags, "bad-word", "text that never appears in the answer; may be repeated",
          [&](const std::string& value) { request.add_bad_words(value); });
  // Of a oneof the last one would win in silence.
  const auto only_constraint = [&](const std::string& flag) {
    return request.constraint_case() == v1::GenerateRequest::CONSTRAINT_NOT_SET
               ? absl::OkStatus()
               : absl::InvalidArgumentError(absl::StrCat("--", flag,
                                                         " beside another one, expected at most one of "
                                                         "--json-schema, --json-schema-file and --regex"));
  };
  flags.Add("json-schema", "the answer is JSON that fits this schema",
            [&, only_constraint](const std::string& value) {
              RETURN_IF_ERROR(only_constraint("json-schema"));
              request.set_json_schema(value);
              return CheckUtf8("json-schema", value);
            });
  flags.Add("json-schema-file", "the same, from a file", [&, only_constraint](const std::string& path) {
    RETURN_IF_ERROR(only_constraint("json-schema-file"));
    ASSIGN_OR_RETURN(std::string schema, ReadTextFile("json-schema-file", path));
    request.set_json_schema(std::move(schema));
    return absl::OkStatus();
  });
  flags.Add("regex", "the whole answer matches this regular expression",
            [&, only_constraint](const std::string& value) {
              RETURN_IF_ERROR(only_constraint("regex"));
              request.set_regex(value);
              return CheckUtf8("regex", value);
            });
}

// What is told beside the answer.
void AddReportFlags(FlagSet& flags, v1::GenerateRequest& request) {
  AddInt32(flags, "n", "this many answers to the prompt", [&](int32_t value) { request.set_n(value); });
  flags.AddSwitch("log-probs", "log-probabilities of the answer's tokens",
                  [&] { request.set_log_probs(true); });
  AddInt32(flags, "top-log-probs", "this many of the most probable tokens beside each one",
           [&](int32_t value) { request.set_top_log_probs(value); });
  flags.AddSwitch("prompt-log-probs", "log-probabilities of the prompt's tokens",
                  [&] { request.set_prompt_log_probs(true); });
  flags.AddSwitch("echo", "the prompt in front of each answer", [&] { request.set_echo(true); });
}

// How it is served.
void AddServiceFlags(FlagSet& flags, v1::GenerateRequest& request) {
  AddInt32(flags, "priority", "larger runs earlier among those that wait; 0 is normal",
           [&](int32_t value) { request.set_priority(value); });
  flags.Add("request-timeout",
            "the longest the server may take, told by it; --timeout is this end's patience: 500ms, 30s, 5m",
            [&](const std::string& value) {
              ASSIGN_OR_RETURN(const absl::Duration timeout, ParseTimeout("request-timeout", value));
              absl::Duration rest;
              request.mutable_timeout()->set_seconds(absl::IDivDuration(timeout, absl::Seconds(1), &rest));
              request.mutable_timeout()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
              return absl::OkStatus();
            });
  flags.Add("speculation", "auto, tree, chain or off", [&](const std::string& value) {
    ASSIGN_OR_RETURN(const v1::SpeculationMode mode, ParseMode(value));
    request.mutable_speculation()->set_mode(mode);
    return absl::OkStatus();
  });
  AddInt32(flags, "tree-nodes", "drafted nodes of a round",
           [&](int32_t value) { request.mutable_speculation()->set_tree_nodes(value); });
  AddUtf8(flags, "model", "name of the model", [&](const std::string& value) { request.set_model(value); });
  AddUtf8(flags, "client-request-id", "an id for the server's logs",
          [&](const std::string& value) { request.set_client_request_id(value); });
  flags.Add("media", "TYPE:FILE, a medium beside the prompt; may be repeated",
            [&](const std::string& value) { return AddMedium(value, request); });
}

}  // namespace

void AddRequestFlags(FlagSet& flags, v1::GenerateRequest& request) {
  AddSamplingFlags(flags, request);
  AddAnswerFlags(flags, request);
  AddReportFlags(flags, request);
  AddServiceFlags(flags, request);
}

absl::Status ParseIds(const std::string& flag, const std::string& text,
                      google::protobuf::RepeatedField<int32_t>& out) {
  for (const auto& word : absl::StrSplit(text, ',')) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " has ", word, ", expected integers and commas"));
    }
    out.Add(id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTextFile(const std::string& flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return Mistake(flag, path, "a file that is not empty");
  }
  RETURN_IF_ERROR(CheckUtf8(flag, text.str()));
  return text.str();
}

}  // namespace arborist::coordinator
