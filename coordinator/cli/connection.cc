#include "coordinator/cli/connection.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_bridge.h"

namespace arborist::coordinator {
namespace {

constexpr std::chrono::seconds kConnectTimeout{10};

}  // namespace

void Connection::AddFlags(FlagSet& flags, const std::string& default_timeout) {
  flags.Add("address", absl::StrCat("unix:/path or host:port (default ", address, ")"),
            [this](const std::string& value) {
              address = value;
              return ValidateAddress("--address", value);
            });
  flags.Add("timeout",
            absl::StrCat("give up after this time: 500ms, 30s, 5m (default: ", default_timeout, ")"),
            [this](const std::string& value) {
              absl::StatusOr<absl::Duration> parsed = ParseTimeout("timeout", value);
              if (parsed.ok()) {
                timeout = *parsed;
              }
              return parsed.status();
            });
}

std::shared_ptr<grpc::Channel> Connection::Open() const {
  return CreateRpcChannel(address, {.connect_timeout = kConnectTimeout});
}

void Connection::SetDeadline(grpc::ClientContext& context) const {
  if (timeout != absl::InfiniteDuration()) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& name, const std::string& text) {
  absl::Duration parsed;
  if (!absl::ParseDuration(text, &parsed) || parsed <= absl::ZeroDuration() || parsed > absl::Hours(24)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, "=", text, ", expected a duration up to 24h, such as 500ms or 30s"));
  }
  return parsed;
}

absl::Status CheckUtf8(const std::string& name, const std::string& text) {
  const size_t valid = ValidUtf8Prefix(text);
  return valid == text.size()
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat("--", name, " has a byte at ", valid, " that is not UTF-8, expected UTF-8"));
}

int PrintRpcError(const grpc::Status& rpc) {
  const absl::Status status = FromGrpcStatus(rpc);
  std::string text = absl::StrCat("error: ", absl::StatusCodeToString(status.code()), ": ", status.message());
  for (const FieldViolation& violation : FieldViolationsOf(status)) {
    absl::StrAppend(&text, "\n  field ", violation.field, ": ", violation.description);
  }
  if (const std::string origin = OriginOf(status); !origin.empty()) {
    absl::StrAppend(&text, "\n  from the ", origin, " (", ReasonOf(status), ")");
  }
  if (const auto delay = RetryDelayOf(status); delay.has_value()) {
    absl::StrAppend(&text, "\n  try again in ", delay->count(), " ms");
  }
  std::fprintf(stderr, "%s\n", text.c_str());
  return 1;
}

int PrintUsageError(const absl::Status& status) {
  std::fprintf(stderr, "arborist: %s\n", std::string(status.message()).c_str());
  return 2;
}

}  // namespace arborist::coordinator
