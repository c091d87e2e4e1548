#include <cstdio>

#include "absl/strings/str_format.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/answer.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/generate_flags.h"

namespace arborist::coordinator {
namespace {

// The one line of figures.
std::string Figures(const v1::GenerateFinal& final) {
  const v1::RequestSeconds& seconds = final.seconds();
  const double tokens = static_cast<double>(final.usage().completion_tokens());
  const double decode = seconds.total() - seconds.queue() - seconds.prefill();
  std::string line = absl::StrFormat(
      "%d tokens, %.1f tokens/s, %d rounds, mean accepted length %.2f, draft %.3f s, verify %.3f s, wire "
      "%.3f s",
      final.usage().completion_tokens(), decode > 0 ? tokens / decode : 0.0, final.rounds(),
      MeanAcceptedLength(final), seconds.draft(), seconds.verify(), seconds.wire());
  if (final.fallbacks() > 0) {
    absl::StrAppendFormat(&line, ", %d fallbacks", final.fallbacks());
  }
  return line;
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
  const auto show = [&](const v1::GenerateChunk& chunk) {
    if (!flags.json) {
      std::fwrite(chunk.text().data(), 1, chunk.text().size(), stdout);
      std::fflush(stdout);
    }
  };
  const GeneratedAnswer answer = ReadAnswer(*stub, flags.connection, flags.request, show);
  if (!flags.json && !answer.text.empty() && answer.text.back() != '\n') {
    std::fputs("\n", stdout);
  }
  if (!answer.status.ok()) {
    std::fflush(stdout);
    return PrintRpcError(answer.status);
  }
  if (flags.json) {
    std::printf("%s\n", AsJson(answer).c_str());
  } else {
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", Figures(answer.final).c_str());
  }
  return 0;
}

}  // namespace arborist::coordinator
