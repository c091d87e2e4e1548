#include <cstdio>

#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/answer.h"
#include "coordinator/cli/answer_json.h"
#include "coordinator/cli/answer_printer.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/generate_flags.h"

namespace arborist::coordinator {
namespace {

int GenerateAsJson(v1::CoordinatorService::Stub& stub, const GenerateFlags& flags) {
  const GeneratedAnswers answers = ReadAnswers(stub, flags.connection, flags.request,
                                               [](const GeneratedAnswers&, const v1::GenerateResponse&) {});
  std::printf("%s\n", AsJson(flags.request, answers).c_str());
  return answers.status.ok() ? 0 : PrintRpcError(answers.status);
}

int GenerateAsText(v1::CoordinatorService::Stub& stub, const GenerateFlags& flags) {
  AnswerPrinter printer(flags.request.n(), [&](int32_t id) {
    grpc::ClientContext context;
    flags.connection.SetDeadline(context);
    v1::DetokenizeRequest request;
    request.add_token_ids(id);
    v1::DetokenizeResponse response;
    return stub.Detokenize(&context, request, &response).ok() ? response.text() : std::string();
  });
  const GeneratedAnswers answers =
      ReadAnswers(stub, flags.connection, flags.request,
                  [&](const GeneratedAnswers& so_far, const v1::GenerateResponse& response) {
                    printer.Show(so_far, response);
                  });
  printer.Finish(answers);
  for (size_t i = 0; i < answers.answers.size(); ++i) {
    if (!answers.answers[i].final.has_value()) {
      continue;
    }
    if (flags.request.n() > 1) {
      std::fprintf(stderr, "answer %d: ", static_cast<int>(i));
    }
    std::fprintf(stderr, "%s\n", Figures(*answers.answers[i].final).c_str());
  }
  return answers.status.ok() ? 0 : PrintRpcError(answers.status);
}

}  // namespace

int GenerateCommand(int argc, const char* const* argv) {
  GenerateFlags flags;
  if (const absl::Status status = ParseGenerateFlags(argc, argv, flags); !status.ok()) {
    return PrintUsageError(status);
  }
  if (!flags.help.empty()) {
    std::fputs(flags.help.c_str(), stdout);
    return 0;
  }
  const auto stub = v1::CoordinatorService::NewStub(flags.connection.Open());
  return flags.json ? GenerateAsJson(*stub, flags) : GenerateAsText(*stub, flags);
}

}  // namespace arborist::coordinator
