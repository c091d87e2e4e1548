#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "arborist/v1/drafter.grpc.pb.h"
#include "arborist/v1/verifier.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/channel.h"
#include "gtest/gtest.h"

namespace arborist::bad_input {

// The three real processes on the shipped pair, started once for all tests of a program, and stubs of each.
class Processes {
 public:
  Processes() = default;
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Until all three serve, and one request has told what the good ids are.
  absl::Status Start();

  // Of "coordinator", "drafter" and "verifier".
  std::string SocketPath(const std::string& service) const;
  std::string Address(const std::string& service) const { return "unix:" + SocketPath(service); }
  std::shared_ptr<grpc::Channel> channel(const std::string& service) const;
  v1::CoordinatorService::Stub& coordinator() { return *coordinator_; }
  v1::DrafterService::Stub& drafter() { return *drafter_; }
  v1::VerifierService::Stub& verifier() { return *verifier_; }
  const v1::VerifierServiceGetInfoResponse& info() const { return info_; }

  // A request in each of the two ways still gets the ids that the first one got, the coordinator has all
  // places and the verifier all pages back. What is wrong otherwise, or OK.
  absl::Status StillServes();
  // As the coordinator's metrics say; -1 if they cannot be had.
  int64_t AnswersInFlight() const;

  // SIGTERM; whether every process ended with status 0.
  bool EndsWell();

 private:
  struct Process {
    std::string name;
    pid_t pid = -1;
  };
  absl::Status Spawn(const std::string& name, const std::vector<std::string>& flags);
  absl::Status AwaitServing(const std::string& name);
  absl::Status Good(v1::SpeculationMode mode, std::vector<int32_t>& ids);
  bool DrafterIsKnown();
  int64_t FreePages();
  std::string Log(const std::string& name) const;

  std::string folder_;
  std::vector<Process> processes_;
  std::unique_ptr<v1::CoordinatorService::Stub> coordinator_;
  std::unique_ptr<v1::DrafterService::Stub> drafter_;
  std::unique_ptr<v1::VerifierService::Stub> verifier_;
  v1::VerifierServiceGetInfoResponse info_;
  std::vector<int32_t> good_ids_;
};

// Those of this program.
Processes& TheProcesses();

// After every case of a table.
inline void ExpectStillServes() {
  const absl::Status status = TheProcesses().StillServes();
  EXPECT_TRUE(status.ok()) << status;
}

// Polls for up to 30 s.
bool Eventually(const std::function<bool()>& condition);

// `text` over what `message` has; a mistake in a table is a failed test.
void Overlay(const std::string& text, google::protobuf::Message& message);

// How a call must end. `field` is that of BadRequest's first violation; empty: there is none.
struct Refusal {
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  std::string reason = "BAD_REQUEST";
  std::string field;
  std::string message;  // the whole of it; FINGERPRINT and PROJECTION_HASH stand for the verifier's
};
void ExpectRefused(const absl::Status& status, const std::string& origin, const Refusal& refusal);

// A refused field as FieldError says it: "field=value, expected expectation".
Refusal Field(const std::string& field, const std::string& value_and_expectation);

// FAILED_PRECONDITION with a reason.
Refusal Precondition(const std::string& reason, const std::string& message);

}  // namespace arborist::bad_input
