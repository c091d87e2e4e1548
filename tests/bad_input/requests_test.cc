// Requests that the coordinator refuses by name, on three real processes.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "tests/bad_input/processes.h"
#include "tests/bad_input/verify_stream.h"

namespace arborist::bad_input {
namespace {

struct BadRequest {
  const char* name;
  std::string request;  // over one of `text: "x"`
  Refusal refusal;
};

// `one` so often, with # for the index.
std::string Times(int count, const std::string& one) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const size_t number = one.find('#');
    absl::StrAppend(
        &text,
        number == std::string::npos ? one : absl::StrCat(one.substr(0, number), i, one.substr(number + 1)),
        " ");
  }
  return text;
}

Refusal UnknownModel(const std::string& message) {
  return {.code = absl::StatusCode::kNotFound, .reason = "UNKNOWN_MODEL", .field = "", .message = message};
}

Refusal Unsupported(const std::string& field, const std::string& message) {
  return {.code = absl::StatusCode::kUnimplemented,
          .reason = "UNSUPPORTED_FIELD",
          .field = field,
          .message = message};
}

const std::vector<BadRequest>& BadRequests() {
  static const auto* const table = new std::vector<BadRequest>{
      {"no prompt", "clear", Field("prompt", "nothing, expected one of text, token_ids and chat")},
      {"ids of nothing", "token_ids {}", Field("token_ids", "0 tokens, expected 1 to 2047 tokens")},
      {"a negative id", "token_ids { ids: [1, -1] }",
       Field("token_ids[1]", "-1, expected an id in [0, 4096)")},
      {"an id beyond the vocabulary", "token_ids { ids: [1, 4096] }",
       Field("token_ids[1]", "4096, expected an id in [0, 4096)")},
      {"ids as many as the context", "token_ids { ids: [WHOLE] }",
       Field("token_ids", "2048 tokens, expected 1 to 2047 tokens")},
      {"text longer than the context", absl::StrCat("text: '", Times(3000, "word"), "'"),
       Field("text", "6001 tokens, expected 1 to 2047 tokens")},
      {"a chat of nothing", "chat {}", Field("chat.messages", "0 messages, expected 1 to 1024")},
      {"1025 turns", absl::StrCat("chat { ", Times(1025, "messages { role: 'user' }"), "}"),
       Field("chat.messages", "1025 messages, expected 1 to 1024")},
      {"a turn without a role", "chat { messages { content: 'x' } }",
       Field("chat.messages[0].role", ", expected user, assistant or system")},
      {"a turn of a foreign role",
       "chat { messages { role: 'user' } messages { role: 'king' content: 'x' } }",
       Field("chat.messages[1].role", "king, expected user, assistant or system")},
      {"another model", "model: 'gpt'", UnknownModel("model=gpt, expected target or nothing")},
      {"a client's id of 129 bytes", "client_request_id: 'LONG_ID'",
       Field("client_request_id", "129 bytes, expected at most 128 bytes")},
      {"no output wanted", "max_tokens: 0", Field("max_tokens", "0, expected an integer in [1, 2048]")},
      {"less than no output", "max_tokens: -1", Field("max_tokens", "-1, expected an integer in [1, 2048]")},
      {"more output than the context", "max_tokens: 2049",
       Field("max_tokens", "2049, expected an integer in [1, 2048]")},
      {"a least length below zero", "min_tokens: -1",
       Field("min_tokens", "-1, expected an integer in [0, 2048]")},
      {"a least length above the most", "max_tokens: 5 min_tokens: 6",
       Field("min_tokens", "6, expected an integer in [0, 5]")},
      {"a least length of stop ids alone", "min_tokens: 1 allowed_token_ids: 7 stop_ids: 7",
       Field("min_tokens", "1, expected 0 where allowed_token_ids holds nothing but stop_ids")},
      {"a temperature that is no number", "temperature: nan",
       Field("temperature", "nan, expected a number in [0, 100]")},
      {"an infinite temperature", "temperature: inf",
       Field("temperature", "inf, expected a number in [0, 100]")},
      {"a temperature below zero", "temperature: -0.01",
       Field("temperature", "-0.01, expected a number in [0, 100]")},
      {"a temperature above 100", "temperature: 101",
       Field("temperature", "101, expected a number in [0, 100]")},
      {"a top_k below zero", "top_k: -1", Field("top_k", "-1, expected an integer in [0, 4096]")},
      {"a top_k beyond the vocabulary", "top_k: 4097",
       Field("top_k", "4097, expected an integer in [0, 4096]")},
      {"a top_p of zero", "top_p: 0", Field("top_p", "0, expected a number in (0, 1]")},
      {"a top_p above one", "top_p: 1.01", Field("top_p", "1.01, expected a number in (0, 1]")},
      {"a top_p that is no number", "top_p: nan", Field("top_p", "nan, expected a number in (0, 1]")},
      {"a min_p below zero", "min_p: -0.1", Field("min_p", "-0.1, expected a number in [0, 1]")},
      {"a min_p above one", "min_p: 2", Field("min_p", "2, expected a number in [0, 1]")},
      {"a repetition penalty of zero", "repetition_penalty: 0",
       Field("repetition_penalty", "0, expected a number in (0, 10]")},
      {"a repetition penalty above ten", "repetition_penalty: 10.5",
       Field("repetition_penalty", "10.5, expected a number in (0, 10]")},
      {"a repetition penalty that is no number", "repetition_penalty: nan",
       Field("repetition_penalty", "nan, expected a number in (0, 10]")},
      {"a presence penalty above two", "presence_penalty: 2.5",
       Field("presence_penalty", "2.5, expected a number in [-2, 2]")},
      {"a frequency penalty below minus two", "frequency_penalty: -2.5",
       Field("frequency_penalty", "-2.5, expected a number in [-2, 2]")},
      {"a frequency penalty that is no number", "frequency_penalty: nan",
       Field("frequency_penalty", "nan, expected a number in [-2, 2]")},
      {"1025 biases", Times(1025, "logit_bias { token_id: # bias: 1 }"),
       Field("logit_bias", "1025 ids, expected at most 1024")},
      {"a bias beyond the vocabulary", "logit_bias { token_id: 4096 bias: 1 }",
       Field("logit_bias[0].token_id", "4096, expected an id in [0, 4096)")},
      {"a bias of 101", "logit_bias { token_id: 4 bias: 101 }",
       Field("logit_bias[0].bias", "101, expected a number in [-100, 100]")},
      {"a bias that is no number", "logit_bias { token_id: 4 bias: nan }",
       Field("logit_bias[0].bias", "nan, expected a number in [-100, 100]")},
      {"two biases of one id", "logit_bias { token_id: 4 bias: 1 } logit_bias { token_id: 4 bias: 2 }",
       Field("logit_bias[1].token_id", "4, expected ids that differ")},
      {"an allowed id below zero", "allowed_token_ids: [5, -1]",
       Field("allowed_token_ids[1]", "-1, expected an id in [0, 4096)")},
      {"an allowed id beyond the vocabulary", "allowed_token_ids: [5, 4096]",
       Field("allowed_token_ids[1]", "4096, expected an id in [0, 4096)")},
      {"an allowed id twice", "allowed_token_ids: [5, 6, 5]",
       Field("allowed_token_ids[2]", "5, expected ids that differ")},
      {"129 bad words", Times(129, "bad_words: 'w#'"),
       Field("bad_words", "129 strings, expected at most 128")},
      {"a bad word of nothing", "bad_words: ['a', '']",
       Field("bad_words[1]", "0 bytes, expected 1 to 256 bytes")},
      {"a bad word of 257 bytes", absl::StrCat("bad_words: '", std::string(257, 'x'), "'"),
       Field("bad_words[0]", "257 bytes, expected 1 to 256 bytes")},
      {"17 stop strings", Times(17, "stop: 's#'"), Field("stop", "17 strings, expected at most 16")},
      {"a stop string of nothing", "stop: ''", Field("stop[0]", "0 bytes, expected 1 to 256 bytes")},
      {"a stop string of 257 bytes", absl::StrCat("stop: ['a', '", std::string(257, 'x'), "']"),
       Field("stop[1]", "257 bytes, expected 1 to 256 bytes")},
      {"65 stop ids", Times(65, "stop_ids: #"), Field("stop_ids", "65 ids, expected at most 64")},
      {"a stop id beyond the vocabulary", "stop_ids: 4096",
       Field("stop_ids[0]", "4096, expected an id in [0, 4096)")},
      {"a stop id below zero", "stop_ids: [7, -2]", Field("stop_ids[1]", "-2, expected an id in [0, 4096)")},
      {"fewer answers than none", "n: -1", Field("n", "-1, expected an integer in [1, 128], or 0 for 1")},
      {"more answers than the server gives", "n: 129",
       Field("n", "129, expected an integer in [1, 128], or 0 for 1")},
      {"21 top log-probabilities", "top_log_probs: 21",
       Field("top_log_probs", "21, expected an integer in [0, 20]")},
      {"top log-probabilities below zero", "top_log_probs: -1",
       Field("top_log_probs", "-1, expected an integer in [0, 20]")},
      {"a schema of nothing", "json_schema: ''", Field("json_schema", "0 bytes, expected 1 to 65536 bytes")},
      {"a schema of 64 KiB and a byte", absl::StrCat("json_schema: '", std::string(65537, ' '), "'"),
       Field("json_schema", "65537 bytes, expected 1 to 65536 bytes")},
      {"a pattern of nothing", "regex: ''", Field("regex", "0 bytes, expected 1 to 4096 bytes")},
      {"a pattern of 4 KiB and a byte", absl::StrCat("regex: '", std::string(4097, 'x'), "'"),
       Field("regex", "4097 bytes, expected 1 to 4096 bytes")},
      {"a priority above 100", "priority: 101", Field("priority", "101, expected an integer in [-100, 100]")},
      {"a priority below -100", "priority: -101",
       Field("priority", "-101, expected an integer in [-100, 100]")},
      {"a timeout of zero", "timeout {}", Field("timeout", "0, expected a duration > 0, at most 1h")},
      {"a timeout below zero", "timeout { seconds: -1 }",
       Field("timeout", "-1s, expected a duration > 0, at most 1h")},
      {"a timeout longer than the server's", "timeout { seconds: 3601 }",
       Field("timeout", "1h1s, expected a duration > 0, at most 1h")},
      {"a timeout of an eternity", "timeout { seconds: 9223372036854775807 }",
       Field("timeout", "2562047788015215h30m7s, expected a duration > 0, at most 1h")},
      {"a timeout of too many nanoseconds", "timeout { seconds: 1 nanos: 2000000000 }",
       Field("timeout", "1s and 2000000000 nanos, expected a duration > 0, at most 1h")},
      {"a mode that is unknown", "speculation { mode: 9 }",
       Field("speculation.mode", "9, expected AUTO, TREE, CHAIN or OFF")},
      {"a tree below zero", "speculation { tree_nodes: -1 }",
       Field("speculation.tree_nodes", "-1, expected an integer in [1, 255], or 0 for the default")},
      {"a tree of 256 nodes", "speculation { mode: SPECULATION_MODE_TREE tree_nodes: 256 }",
       Field("speculation.tree_nodes", "256, expected an integer in [1, 255], or 0 for the default")},
      {"an image", "media { mime_type: 'image/png' data: '\\x89PNG' }",
       Unsupported("media",
                   "media=1 (image/png), expected none: no model served here takes images or other media")},
      {"sound beside text", "media { mime_type: 'audio/wav' data: 'RIFF' }",
       Unsupported("media",
                   "media=1 (audio/wav), expected none: no model served here takes images or other media")},
      {"a medium of no type", "media { data: 'x' }",
       Unsupported(
           "media",
           "media=1 (no mime_type), expected none: no model served here takes images or other media")},
      {"two videos", "media { mime_type: 'video/mp4' } media { mime_type: 'video/mp4' }",
       Unsupported("media",
                   "media=2 (video/mp4), expected none: no model served here takes images or other media")},
  };
  return *table;
}

TEST(BadRequests, EveryRefusalNamesFieldValueAndExpectation) {
  for (const BadRequest& bad : BadRequests()) {
    SCOPED_TRACE(bad.name);
    v1::GenerateRequest request;
    if (bad.request != "clear") {
      request.set_text("x");
      Overlay(Spelled(bad.request), request);
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = TheProcesses().coordinator().Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(stream->Read(&response));
    ExpectRefused(FromGrpcStatus(stream->Finish()), kCoordinatorOrigin, bad.refusal);
    ExpectStillServes();
  }
}

TEST(BadRequests, TextToIdsAndBackRefuseByNameToo) {
  const auto tokenize = [](const std::string& text) {
    v1::TokenizeRequest request;
    Overlay(text, request);
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    return FromGrpcStatus(TheProcesses().coordinator().Tokenize(&context, request, &response));
  };
  const auto detokenize = [](const std::string& text) {
    v1::DetokenizeRequest request;
    Overlay(text, request);
    grpc::ClientContext context;
    v1::DetokenizeResponse response;
    return FromGrpcStatus(TheProcesses().coordinator().Detokenize(&context, request, &response));
  };
  ExpectRefused(tokenize(""), kCoordinatorOrigin, Field("input", "nothing, expected one of text and chat"));
  ExpectRefused(tokenize("chat {}"), kCoordinatorOrigin,
                Field("chat.messages", "0 messages, expected 1 to 1024"));
  ExpectRefused(tokenize("chat { messages { role: 'tool' } }"), kCoordinatorOrigin,
                Field("chat.messages[0].role", "tool, expected user, assistant or system"));
  ExpectRefused(detokenize("token_ids: [5, -1]"), kCoordinatorOrigin,
                Field("token_ids[1]", "-1, expected an id of the vocabulary, all below 4096"));
  ExpectRefused(detokenize("token_ids: 2147483647"), kCoordinatorOrigin,
                Field("token_ids[0]", "2147483647, expected an id of the vocabulary, all below 4096"));
  ExpectStillServes();
}

}  // namespace
}  // namespace arborist::bad_input
