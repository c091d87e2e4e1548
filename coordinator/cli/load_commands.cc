// Commands for measurements: many requests at once, and the round trip of an empty call.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/answer.h"
#include "coordinator/cli/answer_json.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/connection.h"
#include "coordinator/cli/request_flags.h"
#include "google/protobuf/text_format.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace arborist::coordinator {
namespace {

constexpr int64_t kMaxCalls = 1000000;
constexpr size_t kMaxRequests = 4096;  // each has a thread

absl::StatusOr<std::vector<v1::GenerateRequest>> ReadRequests(const std::string& path,
                                                              const v1::GenerateRequest& common) {
  std::ifstream file(path);
  std::vector<v1::GenerateRequest> requests;
  for (std::string line; std::getline(file, line);) {
    v1::GenerateRequest own;
    requests.push_back(common);
    if (!google::protobuf::TextFormat::ParseFromString(line, &own)) {
      return absl::InvalidArgumentError(absl::StrCat("--requests=", path, " has in line ", requests.size(),
                                                     " what is no GenerateRequest in text format"));
    }
    requests.back().MergeFrom(own);
  }
  if (requests.empty() || requests.size() > kMaxRequests) {
    return absl::InvalidArgumentError(
        absl::StrCat("--requests=", path, " has ", requests.size(), " lines, expected 1 to ", kMaxRequests));
  }
  return requests;
}

}  // namespace

int BatchCommand(int argc, const char* const* argv) {
  FlagSet flags(
      "usage: arborist batch --requests FILE [flags]    sends every line (a GenerateRequest in text format) "
      "at once; prints a line of JSON for each, in their order, one of a request that failed has `error`; "
      "exits with 1 if any failed. Flags of requests hold for every line that does not say otherwise; lists "
      "of flags and line are joined");
  Connection connection;
  connection.AddFlags(flags);
  std::string path;
  flags.AddText("requests", "the file", [&](const std::string& value) { path = value; });
  v1::GenerateRequest common;
  AddRequestFlags(flags, common);
  if (const auto status = ParseCommandLine(flags, argc, argv); status.has_value()) {
    return *status;
  }
  if (path.empty()) {
    return PrintUsageError(absl::InvalidArgumentError("expected --requests"));
  }
  const absl::StatusOr<std::vector<v1::GenerateRequest>> requests = ReadRequests(path, common);
  if (!requests.ok()) {
    return PrintUsageError(requests.status());
  }
  const auto stub = v1::CoordinatorService::NewStub(connection.Open());
  std::vector<GeneratedAnswers> answers(requests->size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < answers.size(); ++i) {
    threads.emplace_back([&, i] {
      answers[i] = ReadAnswers(*stub, connection, (*requests)[i],
                               [](const GeneratedAnswers&, const v1::GenerateResponse&) {});
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  int code = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].status.ok()) {
      code = PrintRpcError(answers[i].status);
    }
    std::printf("%s\n", AsJson((*requests)[i], answers[i]).c_str());
  }
  return code;
}

int PingCommand(int argc, const char* const* argv) {
  FlagSet flags(
      "usage: arborist ping [--count N] [flags]    microseconds of the round trip of an empty call");
  Connection connection;
  connection.timeout = absl::Seconds(5);
  connection.AddFlags(flags, "5s, of each call");
  int64_t count = 1000;
  flags.AddInteger("count", "calls, one after the other", 1, kMaxCalls,
                   [&](int64_t value) { count = value; });
  // Cores that slept between the calls wake up slowly, so the pause belongs to the figure.
  absl::Duration pause = absl::ZeroDuration();
  flags.Add("pause", "between two calls (default: none)", [&](const std::string& value) {
    const absl::StatusOr<absl::Duration> parsed = ParseTimeout("pause", value);
    pause = parsed.ok() ? *parsed : pause;
    return parsed.status();
  });
  if (const auto status = ParseCommandLine(flags, argc, argv); status.has_value()) {
    return *status;
  }
  const auto stub = grpc::health::v1::Health::NewStub(connection.Open());
  std::vector<double> microseconds;
  for (int64_t i = 0; i <= count; ++i) {
    absl::SleepFor(pause);
    grpc::ClientContext context;
    connection.SetDeadline(context);  // of the call, not of the pause before it
    grpc::health::v1::HealthCheckResponse response;
    const auto begin = std::chrono::steady_clock::now();
    if (const grpc::Status status = stub->Check(&context, {}, &response); !status.ok()) {
      return PrintRpcError(status);
    }
    const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - begin;
    if (i > 0) {  // the first one connects
      microseconds.push_back(passed.count());
    }
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("{\"count\": %d, \"median_us\": %.1f, \"p90_us\": %.1f}\n", static_cast<int>(count),
              microseconds[microseconds.size() / 2], microseconds[microseconds.size() * 9 / 10]);
  return 0;
}

}  // namespace arborist::coordinator
