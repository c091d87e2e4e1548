#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/flags.h"
#include "grpcpp/grpcpp.h"

namespace arborist::coordinator {

// What every command needs: where to, and how long to wait.
struct Connection {
  std::string address = "127.0.0.1:50050";
  absl::Duration timeout = absl::InfiniteDuration();

  // The help says `default_timeout` where a command that finds no --timeout sets its own.
  void AddFlags(FlagSet& flags, const std::string& default_timeout = "never");
  std::shared_ptr<grpc::Channel> Open() const;
  void SetDeadline(grpc::ClientContext& context) const;
};

// "--name=value, expected ..." unless it is a duration > 0, such as 500ms, 2s or 1m.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& name, const std::string& text);

// The same error for a text that is not UTF-8 as for any other bad flag.
absl::Status CheckUtf8(const std::string& name, const std::string& text);

// Prints what went wrong, with the fields, the origin and the time after which to try again; returns 1.
int PrintRpcError(const grpc::Status& status);
// Prints a mistake of the command line; returns 2.
int PrintUsageError(const absl::Status& status);

}  // namespace arborist::coordinator
