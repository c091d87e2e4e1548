#include <cstdio>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/connection.h"
#include "coordinator/cli/json_writer.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace arborist::coordinator {
namespace {

std::string ReadStandardInput() {
  std::string text;
  char buffer[1 << 16];
  for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;) {
    text.append(buffer, count);
  }
  return text;
}

std::string ModeName(v1::SpeculationMode mode) {
  switch (mode) {
    case v1::SPECULATION_MODE_TREE:
      return "tree";
    case v1::SPECULATION_MODE_CHAIN:
      return "chain";
    case v1::SPECULATION_MODE_OFF:
      return "off";
    default:
      return "auto";
  }
}

const char* DrafterName(v1::DrafterState state) {
  switch (state) {
    case v1::DRAFTER_STATE_READY:
      return "ready";
    case v1::DRAFTER_STATE_UNAVAILABLE:
      return "unavailable";
    default:
      return "none";
  }
}

std::string AsJson(const v1::GetModelResponse& model) {
  JsonWriter defaults;
  defaults.Number("temperature", model.defaults().temperature());
  defaults.Integer("top_k", model.defaults().top_k());
  defaults.Number("top_p", model.defaults().top_p());
  defaults.Number("min_p", model.defaults().min_p());
  defaults.Number("repetition_penalty", model.defaults().repetition_penalty());
  defaults.Text("speculation", ModeName(model.defaults().mode()));
  defaults.Integer("tree_nodes", model.defaults().tree_nodes());
  defaults.Integer("max_tokens", model.defaults().max_tokens());
  JsonWriter out;
  out.Text("name", model.name());
  out.Integer("vocabulary_size", model.vocabulary_size());
  out.Integer("context_length", model.context_length());
  out.Integers("eos_ids", model.eos_ids());
  out.Text("system_fingerprint", model.system_fingerprint());
  out.Text("drafter", DrafterName(model.drafter_state()));
  out.Text("proposer", model.proposer());
  out.Integer("max_tree_nodes", model.max_tree_nodes());
  out.Boolean("has_chat_template", model.has_chat_template());
  out.Raw("defaults", defaults.Finish());
  return out.Finish();
}

}  // namespace

int ModelCommand(int argc, const char* const* argv) {
  FlagSet flags("usage: arborist model [flags]    prints one JSON object");
  Connection connection;
  connection.AddFlags(flags);
  if (const auto status = ParseCommandLine(flags, argc, argv); status.has_value()) {
    return *status;
  }
  grpc::ClientContext context;
  connection.SetDeadline(context);
  v1::GetModelResponse response;
  const auto stub = v1::CoordinatorService::NewStub(connection.Open());
  const grpc::Status status = stub->GetModel(&context, v1::GetModelRequest(), &response);
  if (!status.ok()) {
    return PrintRpcError(status);
  }
  std::printf("%s\n", AsJson(response).c_str());
  return 0;
}

int TokenizeCommand(int argc, const char* const* argv) {
  FlagSet flags("usage: arborist tokenize [--text T] [flags]    prints ids with commas");
  Connection connection;
  connection.AddFlags(flags);
  v1::TokenizeRequest request;
  flags.Add("text", "the text (default: standard input)", [&](const std::string& value) {
    request.set_text(value);
    return CheckUtf8("text", value);
  });
  flags.AddSwitch("omit-special-tokens", "without the tokens around a prompt",
                  [&] { request.set_omit_special_tokens(true); });
  if (const auto status = ParseCommandLine(flags, argc, argv); status.has_value()) {
    return *status;
  }
  if (!request.has_text()) {
    request.set_text(ReadStandardInput());
    if (const absl::Status status = CheckUtf8("text", request.text()); !status.ok()) {
      return PrintUsageError(status);
    }
  }
  grpc::ClientContext context;
  connection.SetDeadline(context);
  v1::TokenizeResponse response;
  const auto stub = v1::CoordinatorService::NewStub(connection.Open());
  const grpc::Status status = stub->Tokenize(&context, request, &response);
  if (!status.ok()) {
    return PrintRpcError(status);
  }
  std::printf("%s\n", absl::StrJoin(response.token_ids(), ",").c_str());
  return 0;
}

int DetokenizeCommand(int argc, const char* const* argv) {
  FlagSet flags("usage: arborist detokenize --token-ids 1,2,3 [flags]    prints the text");
  Connection connection;
  connection.AddFlags(flags);
  v1::DetokenizeRequest request;
  flags.Add("token-ids", "the ids", [&](const std::string& value) {
    for (const auto& word : absl::StrSplit(value, ',')) {
      int32_t id = 0;
      if (!absl::SimpleAtoi(word, &id)) {
        return absl::InvalidArgumentError(
            absl::StrCat("--token-ids has ", word, ", expected integers and commas"));
      }
      request.add_token_ids(id);
    }
    return absl::OkStatus();
  });
  flags.AddSwitch("skip-special-tokens", "without special tokens",
                  [&] { request.set_skip_special_tokens(true); });
  if (const auto status = ParseCommandLine(flags, argc, argv); status.has_value()) {
    return *status;
  }
  grpc::ClientContext context;
  connection.SetDeadline(context);
  v1::DetokenizeResponse response;
  const auto stub = v1::CoordinatorService::NewStub(connection.Open());
  const grpc::Status status = stub->Detokenize(&context, request, &response);
  if (!status.ok()) {
    return PrintRpcError(status);
  }
  std::printf("%s\n", response.text().c_str());
  return 0;
}

namespace {

constexpr absl::Duration kOneQuestion = absl::Seconds(5);

// Prints what the service says at first and every change, until the server goes or the time is over. A server
// that goes is not well, whatever it said last.
int WatchHealth(const Connection& connection, grpc::health::v1::Health::Stub& stub,
                const grpc::health::v1::HealthCheckRequest& request) {
  grpc::ClientContext context;
  connection.SetDeadline(context);
  const auto reader = stub.Watch(&context, request);
  grpc::health::v1::HealthCheckResponse response;
  while (reader->Read(&response)) {
    std::printf("%s\n", grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status()).c_str());
    std::fflush(stdout);
  }
  const grpc::Status status = reader->Finish();
  const bool said_something = response.status() != grpc::health::v1::HealthCheckResponse::UNKNOWN;
  if (!said_something || status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
    return PrintRpcError(status);
  }
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING ? 0 : 1;
}

}  // namespace

int HealthCommand(int argc, const char* const* argv) {
  FlagSet flags(
      "usage: arborist health [--service S] [--wait D | --watch] [flags]    exits with 0 if it is SERVING "
      "(with --watch: if --timeout ended it and it was), 1 if not or if the server is gone");
  Connection connection;
  connection.AddFlags(flags, "5s, of each question; with --watch never");
  grpc::health::v1::HealthCheckRequest request;
  absl::Duration wait = absl::ZeroDuration();
  flags.Add("service", "for example arborist.v1.CoordinatorService (default: the process)",
            [&](const std::string& value) {
              request.set_service(value);
              return CheckUtf8("service", value);
            });
  flags.Add("wait", "ask again until it is SERVING or this time is over", [&](const std::string& value) {
    const absl::StatusOr<absl::Duration> parsed = ParseTimeout("wait", value);
    wait = parsed.ok() ? *parsed : wait;
    return parsed.status();
  });
  bool watch = false;
  flags.AddSwitch("watch", "print what it says and every change until it is gone; --timeout ends it, too",
                  [&] { watch = true; });
  if (const auto status = ParseCommandLine(flags, argc, argv); status.has_value()) {
    return *status;
  }
  if (watch && wait > absl::ZeroDuration()) {
    std::fprintf(stderr, "--watch beside --wait, expected one of them\n");
    return 2;
  }
  const auto stub = grpc::health::v1::Health::NewStub(connection.Open());
  if (watch) {
    return WatchHealth(connection, *stub, request);
  }
  if (connection.timeout == absl::InfiniteDuration()) {
    connection.timeout = kOneQuestion;
  }
  const absl::Time end = absl::Now() + wait;
  while (true) {
    grpc::ClientContext context;
    connection.SetDeadline(context);
    if (const auto last = absl::ToChronoTime(end); wait > absl::ZeroDuration() && last < context.deadline()) {
      context.set_deadline(last);
    }
    // A call that fails at once would leave nobody to read the server's first words: gRPC then looks for them
    // every 5 s only.
    context.set_wait_for_ready(wait > absl::ZeroDuration());
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = stub->Check(&context, request, &response);
    if (status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING) {
      std::printf("SERVING\n");
      return 0;
    }
    if (absl::Now() >= end) {
      if (!status.ok()) {
        return PrintRpcError(status);
      }
      std::printf("%s\n",
                  grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status()).c_str());
      return 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace arborist::coordinator
