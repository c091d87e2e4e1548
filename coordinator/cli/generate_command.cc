#include <cstdio>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/generate_flags.h"
#include "coordinator/cli/json_writer.h"

namespace arborist::coordinator {
namespace {

struct Result {
  std::string text;
  std::vector<int32_t> token_ids;
  v1::GenerateFinal final;
};

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

double MeanAcceptedLength(const v1::GenerateFinal& final) {
  const auto& lengths = final.accepted_lengths();
  return lengths.empty() ? 0 : std::accumulate(lengths.begin(), lengths.end(), 0.0) / lengths.size();
}

std::string AsJson(const Result& result) {
  const v1::GenerateFinal& final = result.final;
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
  out.Text("text", result.text);
  out.Integers("token_ids", result.token_ids);
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
  return out.Finish();
}

// The one line of figures.
std::string Figures(const v1::GenerateFinal& final) {
  const v1::RequestSeconds& seconds = final.seconds();
  const double tokens = static_cast<double>(final.usage().completion_tokens());
  const double decode = seconds.total() - seconds.queue() - seconds.prefill();
  std::string line = absl::StrFormat(
      "%d tokens, %.1f tokens/s, %d rounds, mean accepted length %.2f, draft %.3f s, verify %.3f s, wire "
      "%.3f s",
      final.usage().completion_tokens(), decode > 0 ? tokens / decode : 0.0, final.rounds(),
      MeanAcceptedLength(final), seconds.draft(), seconds.verify(), seconds.wire());
  if (final.fallbacks() > 0) {
    absl::StrAppendFormat(&line, ", %d fallbacks", final.fallbacks());
  }
  return line;
}

void Show(const v1::GenerateChunk& chunk, bool json, Result& result) {
  result.text += chunk.text();
  result.token_ids.insert(result.token_ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
  if (!json) {
    std::fwrite(chunk.text().data(), 1, chunk.text().size(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace

int GenerateCommand(int argc, const char* const* argv) {
  GenerateFlags flags;
  if (const absl::Status status = ParseGenerateFlags(argc, argv, flags); !status.ok()) {
    return PrintUsageError(status);
  }
  if (!flags.help.empty()) {
    std::fputs(flags.help.c_str(), stdout);
    return 0;
  }
  const auto stub = v1::CoordinatorService::NewStub(flags.connection.Open());
  grpc::ClientContext context;
  flags.connection.SetDeadline(context);
  const auto reader = stub->Generate(&context, flags.request);
  Result result;
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
    if (response.has_chunk()) {
      Show(response.chunk(), flags.json, result);
    } else if (response.has_final()) {
      result.final = response.final();
    }
  }
  const grpc::Status status = reader->Finish();
  if (!flags.json && !result.text.empty() && result.text.back() != '\n') {
    std::fputs("\n", stdout);
  }
  if (!status.ok()) {
    std::fflush(stdout);
    return PrintRpcError(status);
  }
  if (flags.json) {
    std::printf("%s\n", AsJson(result).c_str());
  } else {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", Figures(result.final).c_str());
  }
  return 0;
}

}  // namespace arborist::coordinator
