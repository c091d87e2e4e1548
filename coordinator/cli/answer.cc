#include "coordinator/cli/answer.h"

#include <numeric>

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
    default:
      return "unknown";
  }
}

// On the monotonic clock, which all processes of a machine share.
int64_t Nanoseconds(GeneratedAnswer::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::string ErrorAsJson(const GeneratedAnswer& answer) {
  const absl::Status status = FromGrpcStatus(answer.status);
  JsonWriter error;
  error.Text("code", absl::StatusCodeToString(status.code()));
  error.Text("origin", OriginOf(status));
  error.Text("reason", ReasonOf(status));
  error.Text("message", std::string(status.message()));
  JsonWriter out;
  out.Raw("error", error.Finish());
  out.Text("text", answer.text);
  out.Integers("token_ids", answer.token_ids);
  return out.Finish();
}

}  // namespace

GeneratedAnswer ReadAnswer(v1::CoordinatorService::Stub& stub, const Connection& connection,
                           const v1::GenerateRequest& request,
                           absl::FunctionRef<void(const v1::GenerateChunk&)> show) {
  grpc::ClientContext context;
  connection.SetDeadline(context);
  const auto reader = stub.Generate(&context, request);
  GeneratedAnswer answer;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_chunk()) {
      const v1::GenerateChunk& chunk = response.chunk();
      if (answer.token_ids.empty()) {
        answer.first_chunk = GeneratedAnswer::Clock::now();
        answer.first_chunk_tokens = chunk.token_ids_size();
      }
      answer.text += chunk.text();
      answer.token_ids.insert(answer.token_ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
      show(chunk);
    } else if (response.has_final()) {
      answer.final = response.final();
    }
  }
  answer.status = reader->Finish();
  answer.end = GeneratedAnswer::Clock::now();
  return answer;
}

double MeanAcceptedLength(const v1::GenerateFinal& final) {
  const auto& lengths = final.accepted_lengths();
  return lengths.empty() ? 0 : std::accumulate(lengths.begin(), lengths.end(), 0.0) / lengths.size();
}

std::string AsJson(const GeneratedAnswer& answer) {
  if (!answer.status.ok()) {
    return ErrorAsJson(answer);
  }
  const v1::GenerateFinal& final = answer.final;
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
  JsonWriter out;
  out.Text("text", answer.text);
  out.Integers("token_ids", answer.token_ids);
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
  out.Integer("first_chunk_tokens", answer.first_chunk_tokens);
  out.Integer("first_chunk_ns", Nanoseconds(answer.first_chunk));
  out.Integer("end_ns", Nanoseconds(answer.end));
  return out.Finish();
}

}  // namespace arborist::coordinator
