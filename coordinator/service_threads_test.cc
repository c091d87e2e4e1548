// Many calls of many answers at once, of which clients leave some, peers break some and fields end some. The
// address sanitizer runs this: a call deletes itself when its last answer has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "common/metrics/testing/scrape.h"
#include "coordinator/testing/service_fixture.h"

namespace arborist::coordinator {
namespace {

using ::testing::HasSubstr;

class ServiceThreadsTest : public testing::CoordinatorServiceTest {
 protected:
  // What one client does, with its own seed.
  void Client(int seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 20; ++i) {
      v1::GenerateRequest request = Request(
          random() % 2 == 0 ? v1::SPECULATION_MODE_OFF : v1::SPECULATION_MODE_TREE, 20 + random() % 200);
      request.set_n(1 + random() % 6);
      request.set_echo(random() % 2 == 0);
      request.set_log_probs(random() % 2 == 0);
      request.set_top_log_probs(random() % 3);
      request.set_prompt_log_probs(random() % 2 == 0);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(random() % 4 == 0 ? 5 + random() % 20 : 60000));
      const auto reader = stub_->Generate(&context, request);
      const int leaves_after = random() % 3 == 0 ? static_cast<int>(random() % 20) : -1;
      v1::GenerateResponse response;
      std::vector<Result> results(request.n());
      for (int read = 0; reader->Read(&response); ++read) {
        results[response.sample_index()].Take(response);
        if (read == leaves_after) {
          context.TryCancel();
        }
      }
      if (reader->Finish().ok()) {
        for (uint32_t sample = 0; sample < results.size(); ++sample) {
          ExpectRight(results[sample], request.max_tokens(), sample);
        }
        ++answered_;
      }
    }
  }

  std::atomic<int> answered_{0};
};

TEST_F(ServiceThreadsTest, CallsThatEndInEveryWayLeaveNothingBehind) {
  StartAll(1000);
  std::thread peers([this] {
    for (int i = 0; i < 40; ++i) {
      verifier_.refused_sample = i % 5 == 4 ? 3 : -1;
      drafter_.dies_after = i % 3 == 1 ? 5 : -1;
      verifier_.dies_after = i % 4 == 3 ? 9 : -1;
      testing::Pause(10);
    }
    verifier_.refused_sample = drafter_.dies_after = verifier_.dies_after = -1;
  });
  std::vector<std::thread> clients;
  for (int seed = 0; seed < 6; ++seed) {
    clients.emplace_back([this, seed] { Client(seed); });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  peers.join();
  EXPECT_GT(answered_, 10);
  WaitFor([&] { return coordinator_->admission().running() == 0; });
  WaitFor([&] { return verifier_.running == 0; });
  EXPECT_THAT(Scrape(metrics_), HasSubstr("arborist_requests_awaiting_first_token 0\n"));
  ExpectRight(Generate(Request(v1::SPECULATION_MODE_OFF)), 30);
}

}  // namespace
}  // namespace arborist::coordinator
