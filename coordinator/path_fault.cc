#include "coordinator/path_fault.h"

#include "absl/strings/str_cat.h"

namespace arborist::coordinator {

bool IsRequestFault(const PathEnd& end) {
  if (end.origin != "verifier" ||
      end.reason == "BAD_TREE") {  // a bad tree is the drafter's, whoever reports it
    return false;
  }
  switch (end.status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kNotFound:
      return true;
    default:
      return false;
  }
}

bool IsOverload(const PathEnd& end) {
  return end.status.code() == absl::StatusCode::kResourceExhausted && end.reason != "SLOW_READER";
}

bool IsTakenOver(const PathEnd& end) {
  return end.reason == "SLOW_READER" || end.reason == "TAKEN_OVER" || end.reason == "STALE_EPOCH";
}

PathEnd NoVerifier(const std::string& why) {
  return {absl::UnavailableError(why), "coordinator", "NO_VERIFIER"};
}

PathEnd Silent(const std::string& origin) {
  return {absl::UnavailableError(absl::StrCat("the ", origin, " is silent")), origin, kPeerSilent};
}

FallbackReason FallbackAfter(bool of_drafter, const PathEnd& end) {
  const bool silent = end.reason == kPeerSilent;
  if (of_drafter && IsOverload(end)) {
    return FallbackReason::kDrafterUnavailable;
  }
  if (of_drafter) {
    return silent ? FallbackReason::kDrafterSilent : FallbackReason::kDrafterFault;
  }
  return silent ? FallbackReason::kVerifierSilent : FallbackReason::kVerifierFault;
}

}  // namespace arborist::coordinator
