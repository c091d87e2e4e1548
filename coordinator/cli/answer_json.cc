#include "coordinator/cli/answer_json.h"

#include <vector>

#include "common/rpc/status_bridge.h"
#include "coordinator/cli/json_writer.h"

namespace arborist::coordinator {
namespace {

const char* FinishName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_ID:
    case v1::FINISH_REASON_STOP_STRING:
      return "stop";
    case v1::FINISH_REASON_MAX_TOKENS:
      return "length";
    case v1::FINISH_REASON_CONTEXT_LIMIT:
      return "context_limit";
    case v1::FINISH_REASON_CONSTRAINT:
      return "constraint";
    default:
      return "unknown";
  }
}

// On the monotonic clock, which all processes of a machine share.
int64_t Nanoseconds(GeneratedAnswer::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::string ErrorAsJson(const grpc::Status& rpc) {
  const absl::Status status = FromGrpcStatus(rpc);
  std::vector<std::string> fields;
  for (const FieldViolation& violation : FieldViolationsOf(status)) {
    JsonWriter field;
    field.Text("field", violation.field);
    field.Text("description", violation.description);
    fields.push_back(field.Finish());
  }
  JsonWriter error;
  error.Text("code", absl::StatusCodeToString(status.code()));
  error.Text("origin", OriginOf(status));
  error.Text("reason", ReasonOf(status));
  error.Text("message", std::string(status.message()));
  error.List("fields", fields);
  if (const auto delay = RetryDelayOf(status); delay.has_value()) {
    error.Integer("retry_delay_ms", delay->count());
  }
  return error.Finish();
}

std::string TopListsAsJson(const std::vector<v1::TopLogProbs>& lists) {
  std::vector<std::string> out;
  for (const v1::TopLogProbs& list : lists) {
    std::vector<std::string> tokens;
    for (const v1::TokenLogProb& token : list.tokens()) {
      JsonWriter writer;
      writer.Integer("token_id", token.token_id());
      writer.Number("log_prob", token.log_prob());
      tokens.push_back(writer.Finish());
    }
    out.push_back(JsonList(tokens));
  }
  return JsonList(out);
}

void WriteChunks(const GeneratedAnswer& answer, JsonWriter& out) {
  out.Text("text", answer.text);
  out.Integers("token_ids", answer.token_ids);
  out.Numbers("log_probs", answer.log_probs);
  out.Raw("top_log_probs", TopListsAsJson(answer.top_log_probs));
  out.Text("prompt_text", answer.prompt_text);
  out.Integers("prompt_token_ids", answer.prompt_token_ids);
  out.Numbers("prompt_log_probs", answer.prompt_log_probs);
}

void WriteFinal(const v1::GenerateFinal& final, JsonWriter& out) {
  JsonWriter usage;
  usage.Integer("prompt_tokens", final.usage().prompt_tokens());
  usage.Integer("completion_tokens", final.usage().completion_tokens());
  usage.Integer("cached_tokens", final.usage().cached_tokens());
  usage.Integer("drafted_tokens", final.usage().drafted_tokens());
  usage.Integer("verified_tokens", final.usage().verified_tokens());
  usage.Integer("accepted_tokens", final.usage().accepted_tokens());
  JsonWriter seconds;
  seconds.Number("queue", final.seconds().queue());
  seconds.Number("prefill", final.seconds().prefill());
  seconds.Number("draft", final.seconds().draft());
  seconds.Number("verify", final.seconds().verify());
  seconds.Number("wire", final.seconds().wire());
  seconds.Number("total", final.seconds().total());
  out.Text("finish_reason", FinishName(final.finish_reason()));
  out.Text("stop_string", final.stop_string());
  out.Unsigned("seed", final.seed());
  out.Text("system_fingerprint", final.system_fingerprint());
  out.Text("request_id", final.request_id());
  out.Raw("usage", usage.Finish());
  out.Integer("rounds", final.rounds());
  out.Integers("accepted_lengths", final.accepted_lengths());
  out.Number("mean_accepted_length", MeanAcceptedLength(final));
  out.Integer("verified_nodes", final.verified_nodes());
  out.Integer("cut_nodes", final.cut_nodes());
  out.Integer("fallbacks", final.fallbacks());
  out.Raw("seconds", seconds.Finish());
}

void WriteAnswer(const GeneratedAnswer& answer, JsonWriter& out) {
  WriteChunks(answer, out);
  if (answer.final.has_value()) {
    WriteFinal(*answer.final, out);
  }
  if (!answer.token_ids.empty()) {
    out.Integer("first_chunk_tokens", answer.first_chunk_tokens);
    out.Integer("first_chunk_ns", Nanoseconds(answer.first_chunk));
  }
}

}  // namespace

std::string AsJson(const v1::GenerateRequest& request, const GeneratedAnswers& answers) {
  JsonWriter out;
  if (!answers.status.ok()) {
    out.Raw("error", ErrorAsJson(answers.status));
  }
  if (request.n() > 1) {
    std::vector<std::string> objects;
    for (size_t i = 0; i < answers.answers.size(); ++i) {
      JsonWriter object;
      object.Integer("sample_index", static_cast<int64_t>(i));
      WriteAnswer(answers.answers[i], object);
      objects.push_back(object.Finish());
    }
    out.List("answers", objects);
  } else {
    WriteAnswer(answers.answers.empty() ? GeneratedAnswer() : answers.answers[0], out);
  }
  out.Integer("end_ns", Nanoseconds(answers.end));
  return out.Finish();
}

}  // namespace arborist::coordinator
