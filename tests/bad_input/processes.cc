#include "tests/bad_input/processes.h"

#include <arpa/inet.h>
#include <google/protobuf/text_format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_bridge.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/bad_input/child_process.h"

namespace arborist::bad_input {
namespace {

constexpr std::chrono::seconds kPatience{120};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
}

Processes* started = nullptr;

// GoogleTest owns it; the processes live from before the first test to after the last.
class Environment3 final : public ::testing::Environment {
 public:
  void SetUp() override {
    started = new Processes;
    const absl::Status status = started->Start();
    ASSERT_TRUE(status.ok()) << status;
  }
  void TearDown() override {
    EXPECT_TRUE(started->EndsWell());
    delete started;
    started = nullptr;
  }
};
const ::testing::Environment* const kRegistered = ::testing::AddGlobalTestEnvironment(new Environment3);

}  // namespace

Processes& TheProcesses() { return *started; }

bool Eventually(const std::function<bool()>& condition) {
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
       std::chrono::steady_clock::now() < end;) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

absl::Status Processes::Start() {
  folder_ = absl::StrCat(std::filesystem::temp_directory_path().string(), "/arborist-bad-input-", getpid());
  std::filesystem::create_directories(folder_);
  const std::string models = Environment("ARBORIST_SOURCE_DIR") + "/deploy/models/arborist-tiny/";
  const std::string target = models + "target", draft = models + "drafter";
  RETURN_IF_ERROR(Spawn("verifier", {"--model", target, "--drafter", draft}));
  RETURN_IF_ERROR(
      Spawn("drafter", {"--verifier", Address("verifier"), "--target", target, "--model", draft}));
  RETURN_IF_ERROR(Spawn("coordinator", {"--verifier", Address("verifier"), "--drafter", Address("drafter"),
                                        "--tokenizer", target, "--metrics-listen", "127.0.0.1:0"}));
  for (const Process& process : processes_) {
    RETURN_IF_ERROR(AwaitServing(process.name));
  }
  coordinator_ = v1::CoordinatorService::NewStub(channel("coordinator"));
  drafter_ = v1::DrafterService::NewStub(channel("drafter"));
  verifier_ = v1::VerifierService::NewStub(channel("verifier"));
  grpc::ClientContext context;
  SetDeadline(context);
  RETURN_IF_ERROR(FromGrpcStatus(verifier_->GetInfo(&context, {}, &info_)));
  if (!Eventually([this] { return DrafterIsKnown(); })) {
    return absl::DeadlineExceededError("the coordinator finds no drafter:\n" + Log("coordinator"));
  }
  return Good(v1::SPECULATION_MODE_OFF, good_ids_);
}

Processes::~Processes() {
  for (const Process& process : processes_) {
    if (process.pid > 0) {
      kill(process.pid, SIGKILL);
      waitpid(process.pid, nullptr, 0);
    }
  }
  std::filesystem::remove_all(folder_);
}

std::string Processes::SocketPath(const std::string& service) const {
  return absl::StrCat(folder_, "/", service, ".sock");
}

std::shared_ptr<grpc::Channel> Processes::channel(const std::string& service) const {
  return CreateRpcChannel(Address(service), {.max_message_bytes = 64 << 20});
}

absl::Status Processes::Spawn(const std::string& name, const std::vector<std::string>& flags) {
  // A busy machine is no fault of a peer.
  std::vector<std::string> words = {ProgramPath("arborist-" + name), "--listen", Address(name),
                                    "--peer-silence-ms", "10000"};
  words.insert(words.end(), flags.begin(), flags.end());
  Process process{.name = name};
  ASSIGN_OR_RETURN(process.pid, StartProgram(words, absl::StrCat(folder_, "/", name, ".log")));
  processes_.push_back(process);
  return absl::OkStatus();
}

absl::Status Processes::AwaitServing(const std::string& name) {
  auto health = grpc::health::v1::Health::NewStub(channel(name));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(absl::StrCat("arborist.v1.",
                                   name == "verifier"  ? "Verifier"
                                   : name == "drafter" ? "Drafter"
                                                       : "Coordinator",
                                   "Service"));
  const auto serves = [&] {
    grpc::ClientContext context;
    SetDeadline(context);
    context.set_wait_for_ready(true);
    grpc::health::v1::HealthCheckResponse response;
    return health->Check(&context, request, &response).ok() &&
           response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
  };
  return Eventually(serves)
             ? absl::OkStatus()
             : absl::DeadlineExceededError(absl::StrCat(name, " does not serve:\n", Log(name)));
}

std::string Processes::Log(const std::string& name) const {
  std::ifstream file(absl::StrCat(folder_, "/", name, ".log"));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status Processes::Good(v1::SpeculationMode mode, std::vector<int32_t>& ids) {
  v1::GenerateRequest request;
  request.set_text("import os\nimport sys\n\n\ndef read_file(path):\n");
  request.set_temperature(0.8f);
  request.set_seed(7);
  request.set_ignore_eos(true);
  request.set_max_tokens(12);
  request.mutable_speculation()->set_mode(mode);
  grpc::ClientContext context;
  SetDeadline(context);
  auto stream = coordinator_->Generate(&context, request);
  v1::GenerateResponse response;
  int fallbacks = 0;
  while (stream->Read(&response)) {
    ids.insert(ids.end(), response.chunk().token_ids().begin(), response.chunk().token_ids().end());
    fallbacks += response.final().fallbacks();
  }
  RETURN_IF_ERROR(FromGrpcStatus(stream->Finish()));
  return fallbacks == 0 ? absl::OkStatus() : absl::InternalError("a good request had to change its path");
}

// The coordinator serves without one too.
bool Processes::DrafterIsKnown() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GetModelResponse model;
  return coordinator_->GetModel(&context, {}, &model).ok() &&
         model.drafter_state() == v1::DRAFTER_STATE_READY;
}

int64_t Processes::FreePages() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::VerifierServiceGetInfoResponse info;
  return verifier_->GetInfo(&context, {}, &info).ok() ? info.free_pages() : -1;
}

// From a scrape of the coordinator; -1 if there is none.
int64_t Processes::AnswersInFlight() const {
  const std::string log = Log("coordinator"), place = "metrics on port ",
                    metric = "\narborist_requests_in_flight ";
  const size_t found = log.find(place);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(found == std::string::npos ? 0 : std::atoi(log.c_str() + found + place.size()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string page;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    ssize_t count = write(fd, request.data(), request.size());
    char buffer[4096];
    while (count > 0 && (count = read(fd, buffer, sizeof(buffer))) > 0) {
      page.append(buffer, static_cast<size_t>(count));
    }
  }
  close(fd);
  const size_t value = page.find(metric);
  return value == std::string::npos ? -1 : std::atoll(page.c_str() + value + metric.size());
}

absl::Status Processes::StillServes() {
  for (const Process& process : processes_) {
    int status = 0;
    if (waitpid(process.pid, &status, WNOHANG) != 0) {
      return absl::InternalError(
          absl::StrCat(process.name, " ended with wait status ", status, ":\n", Log(process.name)));
    }
  }
  for (const v1::SpeculationMode mode : {v1::SPECULATION_MODE_OFF, v1::SPECULATION_MODE_TREE}) {
    std::vector<int32_t> ids;
    RETURN_IF_ERROR(Good(mode, ids));
    if (ids != good_ids_) {
      return absl::InternalError(absl::StrCat(v1::SpeculationMode_Name(mode), " wrote ",
                                              absl::StrJoin(ids, " "), ", expected ",
                                              absl::StrJoin(good_ids_, " ")));
    }
  }
  if (!Eventually([this] { return AnswersInFlight() == 0; })) {
    return absl::InternalError(
        absl::StrCat("requests_in_flight=", AnswersInFlight(), ", expected 0 when nothing runs"));
  }
  return Eventually([this] { return FreePages() == info_.total_pages(); })
             ? absl::OkStatus()
             : absl::InternalError(absl::StrCat("free_pages=", FreePages(), ", expected ",
                                                info_.total_pages(), " when nothing runs"));
}

bool Processes::EndsWell() {
  bool well = true;
  for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) {
    kill(process->pid, SIGTERM);
    int status = 0;
    well = waitpid(process->pid, &status, 0) == process->pid && status == 0 && well;
    process->pid = -1;
  }
  return well;
}

void Overlay(const std::string& text, google::protobuf::Message& message) {
  google::protobuf::TextFormat::Parser parser;
  EXPECT_TRUE(parser.MergeFromString(text, &message)) << text;
}

void ExpectRefused(const absl::Status& status, const std::string& origin, const Refusal& refusal) {
  EXPECT_EQ(status.code(), refusal.code) << status;
  EXPECT_EQ(ReasonOf(status), refusal.reason) << status;
  EXPECT_EQ(OriginOf(status), origin) << status;
  EXPECT_EQ(
      std::string(status.message()),
      absl::StrReplaceAll(refusal.message, {{"FINGERPRINT", TheProcesses().info().fingerprint()},
                                            {"PROJECTION_HASH", TheProcesses().info().projection_hash()}}));
  const std::vector<FieldViolation> violations = FieldViolationsOf(status);
  EXPECT_EQ(violations.empty() ? "" : violations[0].field, refusal.field);
}

Refusal Field(const std::string& field, const std::string& value_and_expectation) {
  return {.field = field, .message = absl::StrCat(field, "=", value_and_expectation)};
}

Refusal Precondition(const std::string& reason, const std::string& message) {
  return {.code = absl::StatusCode::kFailedPrecondition, .reason = reason, .field = "", .message = message};
}

}  // namespace arborist::bad_input
