#include "common/rpc/status_bridge.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace arborist {
namespace {

constexpr size_t kMaxMessageBytes = 1024;
constexpr char kTypePrefix[] = "type.googleapis.com/";
constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
constexpr char kOriginKey[] = "origin";

template <typename Detail>
std::optional<Detail> ReadDetail(const absl::Status& status, absl::string_view url) {
  const absl::optional<absl::Cord> payload = status.GetPayload(url);
  Detail detail;
  if (!payload.has_value() || !detail.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return detail;
}

template <typename Detail>
void WriteDetail(absl::Status& status, absl::string_view url, const Detail& detail) {
  status.SetPayload(url, absl::Cord(detail.SerializeAsString()));
}

google::rpc::ErrorInfo ErrorInfoOf(const absl::Status& status) {
  google::rpc::ErrorInfo info =
      ReadDetail<google::rpc::ErrorInfo>(status, kErrorInfoUrl).value_or(google::rpc::ErrorInfo());
  info.set_domain(kErrorDomain);
  return info;
}

const char* DefaultReason(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return reason::kBadRequest;
    case absl::StatusCode::kUnimplemented:
      return reason::kUnsupportedField;
    case absl::StatusCode::kResourceExhausted:
      return reason::kQueueFull;
    case absl::StatusCode::kAborted:
      return reason::kTakenOver;
    case absl::StatusCode::kCancelled:
      return "CANCELLED";
    case absl::StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case absl::StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case absl::StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    default:
      return "INTERNAL";
  }
}

// ? for what is no character: a proto's string is UTF-8 or unreadable, and an error whose details cannot be
// read looks like a broken server.
std::string Readable(absl::string_view text) {
  std::string readable;
  while (!text.empty()) {
    const Utf8Step step = NextUtf8({text.data(), text.size()});
    const bool is_character = step.kind == Utf8Step::Kind::kCharacter;
    const size_t bytes = is_character ? static_cast<size_t>(step.bytes) : 1;
    readable += is_character ? std::string(text.substr(0, bytes)) : std::string("?");
    text.remove_prefix(bytes);
  }
  return readable;
}

// At most kMaxMessageBytes of whole characters. What is too long loses its middle: a message begins with its
// field and ends with what was expected.
std::string ReadableMessage(absl::string_view text) {
  constexpr absl::string_view kCut = " ... ";
  constexpr size_t kEndBytes = 256;
  constexpr size_t kBeginBytes = kMaxMessageBytes - kCut.size() - kEndBytes;
  if (text.size() <= kMaxMessageBytes) {
    return Readable(text);  // as many bytes
  }
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  size_t begin = kBeginBytes;
  size_t end = text.size() - kEndBytes;
  for (int i = 0; i < 3 && continues(begin); ++i) {
    --begin;
  }
  for (int i = 0; i < 3 && continues(end); ++i) {
    ++end;
  }
  return absl::StrCat(Readable(text.substr(0, begin)), kCut, Readable(text.substr(end)));
}

absl::Status AddFieldViolation(absl::Status status, absl::string_view field, absl::string_view description) {
  google::rpc::BadRequest request;
  google::rpc::BadRequest::FieldViolation& violation = *request.add_field_violations();
  violation.set_field(ReadableMessage(field));
  violation.set_description(ReadableMessage(description));
  WriteDetail(status, kBadRequestUrl, request);
  return status;
}

absl::Status Unsupported(absl::string_view field, const std::string& message) {
  return AddFieldViolation(
      ErrorWithReason(absl::StatusCode::kUnimplemented, reason::kUnsupportedField, message), field, message);
}

}  // namespace

absl::Status ErrorWithReason(absl::StatusCode code, absl::string_view reason, absl::string_view message) {
  return WithReason(absl::Status(code, message), reason);
}

absl::Status FieldError(absl::string_view field, absl::string_view value, absl::string_view expected) {
  const std::string message = absl::StrCat(field, "=", value, ", expected ", expected);
  return AddFieldViolation(ErrorWithReason(absl::StatusCode::kInvalidArgument, reason::kBadRequest, message),
                           field, message);
}

absl::Status UnsupportedField(absl::string_view field) {
  return Unsupported(field, absl::StrCat(field, " is not supported by this version, expected it unset"));
}

absl::Status UnsupportedField(absl::string_view field, absl::string_view value, absl::string_view expected) {
  return Unsupported(field, absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status WithReason(const absl::Status& status, absl::string_view reason) {
  absl::Status result = status;
  google::rpc::ErrorInfo info = ErrorInfoOf(status);
  info.set_reason(std::string(reason));
  WriteDetail(result, kErrorInfoUrl, info);
  return result;
}

absl::Status WithOrigin(const absl::Status& status, absl::string_view origin) {
  absl::Status result = status;
  google::rpc::ErrorInfo info = ErrorInfoOf(status);
  (*info.mutable_metadata())[kOriginKey] = std::string(origin);
  WriteDetail(result, kErrorInfoUrl, info);
  return result;
}

absl::Status WithRetryDelay(const absl::Status& status, std::chrono::milliseconds delay) {
  absl::Status result = status;
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay.count() / 1000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay.count() % 1000 * 1000000));
  WriteDetail(result, kRetryInfoUrl, info);
  return result;
}

absl::Status WithoutFieldPrefix(const absl::Status& status, absl::string_view prefix) {
  const std::vector<FieldViolation> violations = FieldViolationsOf(status);
  const absl::string_view named = violations.empty() ? status.message() : violations[0].field;
  if (status.ok() || !absl::StartsWith(named, prefix)) {
    return status;
  }
  absl::Status result(status.code(), absl::StripPrefix(status.message(), prefix));
  status.ForEachPayload(
      [&result](absl::string_view url, const absl::Cord& payload) { result.SetPayload(url, payload); });
  return violations.empty() ? result
                            : AddFieldViolation(result, absl::StripPrefix(violations[0].field, prefix),
                                                absl::StripPrefix(violations[0].description, prefix));
}

std::string ReasonOf(const absl::Status& status) { return ErrorInfoOf(status).reason(); }

std::string OriginOf(const absl::Status& status) {
  const google::rpc::ErrorInfo info = ErrorInfoOf(status);
  const auto origin = info.metadata().find(kOriginKey);
  return origin == info.metadata().end() ? "" : origin->second;
}

std::optional<std::chrono::milliseconds> RetryDelayOf(const absl::Status& status) {
  const auto info = ReadDetail<google::rpc::RetryInfo>(status, kRetryInfoUrl);
  if (!info.has_value()) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(info->retry_delay().seconds() * 1000 +
                                   info->retry_delay().nanos() / 1000000);
}

std::vector<FieldViolation> FieldViolationsOf(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  if (const auto request = ReadDetail<google::rpc::BadRequest>(status, kBadRequestUrl)) {
    for (const auto& violation : request->field_violations()) {
      violations.push_back({violation.field(), violation.description()});
    }
  }
  return violations;
}

grpc::Status ToGrpcStatus(const absl::Status& status, absl::string_view origin) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  absl::Status full = status;
  if (ReasonOf(full).empty()) {
    full = WithReason(full, DefaultReason(full.code()));
  }
  if (OriginOf(full).empty()) {
    full = WithOrigin(full, origin);
  }
  const std::string message = ReadableMessage(full.message());
  if (full.code() == absl::StatusCode::kInvalidArgument && !full.GetPayload(kBadRequestUrl).has_value()) {
    const size_t end = message.find('=');
    full = AddFieldViolation(full, end == std::string::npos ? "" : message.substr(0, end), message);
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(full.code()));
  details.set_message(message);
  full.ForEachPayload([&details](absl::string_view url, const absl::Cord& payload) {
    google::protobuf::Any& any = *details.add_details();
    any.set_type_url(std::string(url));
    any.set_value(std::string(payload));
  });
  return grpc::Status(static_cast<grpc::StatusCode>(full.code()), message, details.SerializeAsString());
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (!status.ok() && details.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& detail : details.details()) {
      if (detail.type_url().rfind(kTypePrefix, 0) == 0) {
        result.SetPayload(detail.type_url(), absl::Cord(detail.value()));
      }
    }
  }
  return result;
}

}  // namespace arborist
