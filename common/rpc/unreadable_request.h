#pragma once

#include <memory>

#include "grpcpp/support/server_interceptor.h"

namespace arborist {

// gRPC ends a call whose request it cannot read, a string in it that is not UTF-8 for example, by
// UNIMPLEMENTED without a word, before the service hears of it. This makes it an InvalidArgument that says
// so, with reason and origin. Of our services and calls with one request; those of other packages and streams
// of requests stay as they are.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AnswerUnreadableRequests();

}  // namespace arborist
