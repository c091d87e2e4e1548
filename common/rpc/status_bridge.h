#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace arborist {

// absl::Status <-> grpc::Status with google.rpc details. A detail is a payload of the absl::Status under its
// proto's type URL, so details survive every conversion in both directions.

inline constexpr char kErrorDomain[] = "arborist";

// The reasons of ErrorInfo that more than one process sends; see the protos for who sends what.
namespace reason {
inline constexpr char kBadRequest[] = "BAD_REQUEST";
inline constexpr char kBadTree[] = "BAD_TREE";
inline constexpr char kUnsupportedField[] = "UNSUPPORTED_FIELD";
inline constexpr char kProtocolVersionMismatch[] = "PROTOCOL_VERSION_MISMATCH";
inline constexpr char kFingerprintMismatch[] = "FINGERPRINT_MISMATCH";
inline constexpr char kProjectionMismatch[] = "PROJECTION_MISMATCH";
inline constexpr char kStaleEpoch[] = "STALE_EPOCH";
inline constexpr char kTakenOver[] = "TAKEN_OVER";
inline constexpr char kRoundInFlight[] = "ROUND_IN_FLIGHT";
inline constexpr char kNotOpen[] = "NOT_OPEN";
inline constexpr char kNotReady[] = "NOT_READY";
inline constexpr char kAlreadyOpen[] = "ALREADY_OPEN";
inline constexpr char kQueueFull[] = "QUEUE_FULL";
inline constexpr char kSlowReader[] = "SLOW_READER";
inline constexpr char kLoading[] = "LOADING";
inline constexpr char kDraining[] = "DRAINING";
inline constexpr char kNotServing[] = "NOT_SERVING";
inline constexpr char kPeerSilent[] = "PEER_SILENT";
inline constexpr char kVerifierUnreachable[] = "VERIFIER_UNREACHABLE";
inline constexpr char kVerifierFault[] = "VERIFIER_FAULT";
inline constexpr char kDrafterFault[] = "DRAFTER_FAULT";
}  // namespace reason

// A status with a reason; its origin is added by the service that sends it.
absl::Status ErrorWithReason(absl::StatusCode code, absl::string_view reason, absl::string_view message);

// InvalidArgument "field=value, expected ...", with a BadRequest that names the field.
absl::Status FieldError(absl::string_view field, absl::string_view value, absl::string_view expected);
// Unimplemented: a field whose behaviour this version lacks.
absl::Status UnsupportedField(absl::string_view field);
// The same as "field=value, expected ...".
absl::Status UnsupportedField(absl::string_view field, absl::string_view value, absl::string_view expected);

// Writes (or replaces) reason and origin; the rest of the status stays. OK stays OK.
absl::Status WithReason(const absl::Status& status, absl::string_view reason);
absl::Status WithOrigin(const absl::Status& status, absl::string_view origin);
absl::Status WithRetryDelay(const absl::Status& status, std::chrono::milliseconds delay);

// Takes `prefix` off the field that a BadRequest names first, and off a message that starts with it: a
// service that asked for another one's caller calls the field by a shorter name.
absl::Status WithoutFieldPrefix(const absl::Status& status, absl::string_view prefix);

// Empty if the status carries none.
std::string ReasonOf(const absl::Status& status);
std::string OriginOf(const absl::Status& status);
std::optional<std::chrono::milliseconds> RetryDelayOf(const absl::Status& status);
struct FieldViolation {
  std::string field;
  std::string description;
};
std::vector<FieldViolation> FieldViolationsOf(const absl::Status& status);

// For the reply of service `origin` ("verifier", ...): adds what is missing, i.e. ErrorInfo with a reason by
// code and the origin, and for InvalidArgument the field in front of the first '='. An origin that is there
// stays. Messages lose their middle above 1 KiB, so that trailing metadata stays below 8 KiB.
grpc::Status ToGrpcStatus(const absl::Status& status, absl::string_view origin);
// Unreadable details are dropped; code and message stay.
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace arborist
