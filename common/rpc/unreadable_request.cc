#include "common/rpc/unreadable_request.h"

#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/rpc/status_bridge.h"

namespace arborist {
namespace {

constexpr absl::string_view kPackage = "/arborist.v1.";

class AnswerUnreadable : public grpc::experimental::Interceptor {
 public:
  explicit AnswerUnreadable(absl::string_view method) : method_(method) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      // No service of ours says it like this: an error without a message.
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
        methods->ModifySendStatus(Unreadable());
      }
    }
    methods->Proceed();
  }

 private:
  grpc::Status Unreadable() const {
    const absl::string_view name = absl::StripPrefix(method_, kPackage);
    const std::string origin = absl::AsciiStrToLower(name.substr(0, name.find("Service/")));
    return ToGrpcStatus(FieldError("request", "unreadable",
                                   absl::StrCat("a message of ", method_, " whose strings are UTF-8")),
                        origin);
  }

  const absl::string_view method_;  // gRPC's, longer than the call
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override {
    using Type = grpc::experimental::ServerRpcInfo::Type;
    const bool one_request = info->type() == Type::UNARY || info->type() == Type::SERVER_STREAMING;
    const absl::string_view method = info->method();
    return one_request && method.substr(0, kPackage.size()) == kPackage ? new AnswerUnreadable(method)
                                                                        : nullptr;
  }
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AnswerUnreadableRequests() {
  return std::make_unique<Factory>();
}

}  // namespace arborist
