// What is no message, no call or no HTTP/2 at all.
#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rpc/status_bridge.h"
#include "tests/bad_input/processes.h"

namespace arborist::bad_input {
namespace {

constexpr const char* kServices[] = {"coordinator", "drafter", "verifier"};

// Sends `bytes` as the one request message; how the call ended.
grpc::Status Call(const std::string& service, const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(TheProcesses().channel(service));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  const auto next = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  next();
  const grpc::Slice slice(bytes);
  call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
  next();
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  next();
  return status;
}

struct BadMessage {
  const char* name;
  const char* service;
  const char* method;
  std::string bytes;
  grpc::StatusCode code;
  std::string message;
};

std::string Nested(int levels) {  // field 3 (chat), messages within messages
  std::string inner;
  for (int i = 0; i < levels; ++i) {
    inner =
        absl::StrCat("\x1a", std::string(1, static_cast<char>(std::min<size_t>(inner.size(), 127))), inner);
  }
  return inner;
}

// A stream learns only that no message came.
const std::vector<BadMessage>& BadMessages() {
  static const char kGenerate[] = "/arborist.v1.CoordinatorService/Generate";
  static const char kVerify[] = "/arborist.v1.VerifierService/Verify";
  static const char kSpeculate[] = "/arborist.v1.DrafterService/Speculate";
  const std::string unreadable =
      absl::StrCat("request=unreadable, expected a message of ", kGenerate, " whose strings are UTF-8");
  static const auto* const table = new std::vector<BadMessage>{
      {"rubbish", "coordinator", kGenerate, "\xff\xff\xff\xff", grpc::INVALID_ARGUMENT, unreadable},
      {"rubbish", "drafter", kSpeculate, "\xff\xff\xff\xff", grpc::INVALID_ARGUMENT,
       "request=unreadable, expected a message of /arborist.v1.DrafterService/Speculate whose strings are "
       "UTF-8"},
      {"rubbish", "verifier", kVerify, "\xff\xff\xff\xff", grpc::FAILED_PRECONDITION,
       "the stream ended before Open, expected open as the first message"},
      {"a length beyond the message", "coordinator", kGenerate, "\x0a\x7f\x61", grpc::INVALID_ARGUMENT,
       unreadable},
      {"text that is not UTF-8", "coordinator", kGenerate, "\x0a\x02\xc3\x28", grpc::INVALID_ARGUMENT,
       unreadable},
      {"a half of a surrogate", "coordinator", kGenerate, "\x0a\x03\xed\xa0\x80", grpc::INVALID_ARGUMENT,
       unreadable},
      {"groups that never end", "coordinator", kGenerate, std::string(200, '\x0b'), grpc::INVALID_ARGUMENT,
       unreadable},
      {"a field number of zero", "coordinator", kGenerate, std::string("\x02\x00", 2), grpc::INVALID_ARGUMENT,
       unreadable},
      {"messages within messages", "coordinator", kGenerate, Nested(60), grpc::INVALID_ARGUMENT,
       "chat.messages=0 messages, expected 1 to 1024"},
      {"a message of 17 MiB", "coordinator", kGenerate, std::string(17 << 20, '\0'), grpc::RESOURCE_EXHAUSTED,
       "Received message larger than max (17825792 vs. 16777216)"},
      {"a message of 17 MiB", "verifier", kVerify, std::string(17 << 20, '\0'), grpc::RESOURCE_EXHAUSTED,
       "Received message larger than max (17825792 vs. 16777216)"},
      {"no such method", "coordinator", "/arborist.v1.CoordinatorService/Imagine", "", grpc::UNIMPLEMENTED,
       ""},
      {"no such service", "coordinator", "/arborist.v2.CoordinatorService/Generate", "", grpc::UNIMPLEMENTED,
       ""},
      {"a method of another process", "verifier", kGenerate, "", grpc::UNIMPLEMENTED, ""},
      {"a path that is none", "verifier", "/", "", grpc::UNIMPLEMENTED, ""},
  };
  return *table;
}

TEST(BadMessages, AMessageThatCannotBeReadEndsItsCallAndNothingElse) {
  for (const BadMessage& bad : BadMessages()) {
    SCOPED_TRACE(absl::StrCat(bad.name, " for the ", bad.service));
    const grpc::Status status = Call(bad.service, bad.method, bad.bytes);
    EXPECT_EQ(status.error_code(), bad.code);
    EXPECT_EQ(status.error_message(), bad.message);
    ExpectStillServes();
  }
}

// A socket below gRPC.
class RawClient {
 public:
  explicit RawClient(const std::string& service) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un peer{};
    peer.sun_family = AF_UNIX;
    std::strncpy(peer.sun_path, TheProcesses().SocketPath(service).c_str(), sizeof(peer.sun_path) - 1);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)), 0)
        << std::strerror(errno);
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawClient() { Close(); }
  void Send(const std::string& bytes) const { (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void Close() {
    if (fd_ >= 0) {
      close(std::exchange(fd_, -1));
    }
  }

 private:
  int fd_;
};

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload) {
  const uint32_t size = static_cast<uint32_t>(payload.size());
  std::string frame;
  for (const uint32_t byte : {size >> 16, size >> 8, size, uint32_t{type}, uint32_t{flags}, stream >> 24,
                              stream >> 16, stream >> 8, stream}) {
    frame.push_back(static_cast<char>(byte));
  }
  return frame + payload;
}

TEST(BadConnections, BytesThatAreNoHttp2HarmNobody) {
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings = Frame(4, 0, 0, "");
  const std::pair<const char*, std::string> openings[] = {
      {"nothing", ""},
      {"one byte", "P"},
      {"half a preface", preface.substr(0, 12)},
      {"HTTP/1.1", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
      {"rubbish", std::string(65536, '\xa5')},
      {"settings cut short", preface + settings.substr(0, 5)},
      {"a frame of 16 MiB", preface + settings + "\xff\xff\xff" + std::string("\0\0\0\0\0\1", 6)},
      {"data without headers", preface + settings + Frame(0, 1, 1, "abc")},
      {"headers of rubbish", preface + settings + Frame(1, 4, 1, "\xff\xff\xff\xff\xff\xff\xff")},
      {"headers that never end", preface + settings + Frame(1, 0, 1, "\x83")},
      {"a window that overflows", preface + settings + Frame(8, 0, 0, "\x7f\xff\xff\xff")},
      {"a stream of an even number", preface + settings + Frame(1, 5, 2, "\x83")},
      {"a flood of settings",
       [&] {
         std::string flood = preface;
         for (int i = 0; i < 5000; ++i) {
           flood += settings;
         }
         return flood;
       }()},
  };
  for (const auto& [name, bytes] : openings) {
    for (const char* service : kServices) {
      SCOPED_TRACE(absl::StrCat(name, " to the ", service));
      RawClient client(service);
      client.Send(bytes);  // it stays open while the good request runs
      if (service == kServices[0]) {
        ExpectStillServes();
      }
      client.Close();
    }
    SCOPED_TRACE(name);
    ExpectStillServes();
  }
}

TEST(BadConnections, HundredsOfSilentConnectionsHarmNobody) {
  std::vector<RawClient> clients;
  for (int i = 0; i < 300; ++i) {
    clients.emplace_back(kServices[i % 3]);
  }
  ExpectStillServes();
  clients.clear();
  ExpectStillServes();
}

}  // namespace
}  // namespace arborist::bad_input
