// Constraints of requests on their way to the verifier.
#include <array>
#include <atomic>
#include <future>

#include "verifier/constraint_compiler.h"
#include "verifier/testing/service_fixture.h"

namespace arborist::verifier {
namespace {

using namespace testing;  // NOLINT: the fixture's vocabulary

class WithoutTokenizerTest : public VerifierServiceTest {
 protected:
  WithoutTokenizerTest() : VerifierServiceTest(/*with_tokenizer=*/false) {}
};

v1::Sampling& SamplingOf(v1::VerifyRequest& request) {
  return *request.mutable_open()->mutable_sequence()->mutable_sampling();
}

bool Allows(const Constraint& constraint, const std::string& text) {
  std::optional<Constraint::State> state = constraint.Start();
  for (const char byte : text) {
    state =
        state.has_value() ? constraint.Advance(*state, TokenId{static_cast<uint8_t>(byte)}) : std::nullopt;
  }
  return state.has_value();
}

TEST_F(VerifierServiceTest, ConstraintsReachTheVerifierCompiled) {
  const std::pair<std::function<void(v1::Sampling&)>, std::array<std::string, 2>> cases[] = {
      {[](auto& s) { s.set_json_schema(R"({"type": "boolean"})"); }, {"tru", "1"}},
      {[](auto& s) { s.set_regex("a+b"); }, {"aaab", "ba"}},
      {[](auto& s) { s.add_bad_words("no"); }, {"yes", "I know"}},
      {[](auto& s) { s.set_regex("[a-z]+"), s.add_bad_words("no"); }, {"yes", "know"}}};
  int number = 0;
  for (const auto& [set, texts] : cases) {
    for (int again = 0; again < 2; ++again) {  // compiled, then kept
      Stream stream(*stub_);
      v1::VerifyRequest open = OpenRequest("r" + std::to_string(++number));
      set(SamplingOf(open));
      SamplingOf(open).add_stop_ids(300);
      stream.Send(open);
      ASSERT_TRUE(stream.AwaitReady());
      const OpenArgs args = fake_.last_open();
      ASSERT_NE(args.constraint, nullptr);
      EXPECT_TRUE(Allows(*args.constraint, texts[0]));
      EXPECT_FALSE(Allows(*args.constraint, texts[1]));
      v1::Committed committed;  // the stream goes on as any other
      stream.Send(TreeRequest(1, 6));
      EXPECT_TRUE(stream.AwaitCommitted(committed));
    }
  }
}

TEST_F(VerifierServiceTest, WhatIsWrongInAConstraintIsNamedWithItsField) {
  const std::pair<std::function<void(v1::Sampling&)>, std::string> cases[] = {
      {[](auto& s) { s.set_json_schema(""); },
       "sequence.sampling.json_schema=(0 bytes), expected a JSON schema"},
      {[](auto& s) { s.set_json_schema("{"); }, "sequence.sampling.json_schema=(refused)"},
      {[](auto& s) { s.set_json_schema(R"({"properties": {"a": {"not": {}}}})"); }, "/properties/a"},
      {[](auto& s) { s.set_json_schema(std::string(65537, ' ')); }, "expected at most 65536"},
      {[](auto& s) { s.set_regex(""); }, "sequence.sampling.regex=(0 bytes), expected a regular expression"},
      {[](auto& s) { s.set_regex("a("); }, "sequence.sampling.regex=(refused)"},
      {[](auto& s) { s.set_regex(std::string(4097, 'a')); }, "expected at most 4096"},
      {[](auto& s) { s.add_bad_words(""); },
       "sequence.sampling.bad_words[0]=(refused), 0 bytes, expected 1 to 256"},
      {[](auto& s) { s.add_bad_words(std::string(257, 'a')); }, "257 bytes"},
      {[](auto& s) {
         for (int i = 0; i < 129; ++i) {
           s.add_bad_words("a");
         }
       },
       "sequence.sampling.bad_words=(refused), 129 entries, expected at most 128"}};
  for (const auto& [set, text] : cases) {
    Stream stream(*stub_);
    v1::VerifyRequest open = OpenRequest();
    set(SamplingOf(open));
    stream.Send(open);
    const absl::Status status = stream.End();
    ExpectError(status, absl::StatusCode::kInvalidArgument, "BAD_REQUEST", text);
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected"));
    ASSERT_EQ(FieldViolationsOf(status).size(), 1u) << status;
    EXPECT_EQ(FieldViolationsOf(status)[0].field.rfind("sequence.sampling.", 0), 0u) << status;
  }
  EXPECT_EQ(fake_.open_sequences(), 0);
}

TEST_F(VerifierServiceTest, WhoLeavesWhileItsConstraintIsCompiledLeavesNothingBehind) {
  for (int i = 0; i < 20; ++i) {
    Stream stream(*stub_);
    v1::VerifyRequest open = OpenRequest("r" + std::to_string(i));
    SamplingOf(open).set_regex("[a-z]{" + std::to_string(1000 + i) + "}");
    stream.Send(open);
    if (i % 2 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(50 * i));
    }
    stream.Cancel();
  }
  EXPECT_TRUE(Eventually([this] { return fake_.open_sequences() == 0; }));
}

TEST_F(WithoutTokenizerTest, ConstraintsAreRefusedByNameAndOthersServed) {
  const std::pair<std::function<void(v1::Sampling&)>, std::string> cases[] = {
      {[](auto& s) { s.set_json_schema("{}"); }, "sequence.sampling.json_schema=(set)"},
      {[](auto& s) { s.set_regex("a"); }, "sequence.sampling.regex=(set)"},
      {[](auto& s) { s.add_bad_words("a"); }, "sequence.sampling.bad_words=(set)"}};
  for (const auto& [set, text] : cases) {
    Stream stream(*stub_);
    v1::VerifyRequest open = OpenRequest();
    set(SamplingOf(open));
    stream.Send(open);
    const absl::Status status = stream.End();
    ExpectError(status, absl::StatusCode::kUnimplemented, "UNSUPPORTED_FIELD", text);
    EXPECT_THAT(std::string(status.message()), HasSubstr("this verifier has no tokenizer"));
    ASSERT_EQ(FieldViolationsOf(status).size(), 1u) << status;
    EXPECT_EQ(FieldViolationsOf(status)[0].field + "=(set)", text);
  }
  Stream stream(*stub_);
  stream.Send(OpenRequest());
  EXPECT_TRUE(stream.AwaitReady());
}

TEST(ConstraintCompilerTest, EqualRequestsShareOneConstraintAndOthersDoNot) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes.emplace_back(1, static_cast<char>(byte));
  }
  ConstraintCompiler compiler(std::make_shared<const TokenVocabulary>(std::move(bytes)));
  const auto compile = [&](const ConstraintSpec& spec) {
    std::promise<ConstraintCompiler::Result> promise;
    compiler.Compile(spec, [&](ConstraintCompiler::Result result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  };
  const ConstraintSpec specs[] = {{.regex = "a"},
                                  {.regex = "b"},
                                  {.json_schema = "{}"},
                                  {.regex = "a", .stop_ids = {TokenId{3}}},
                                  {.regex = "a", .bad_words = {"b", "c"}},
                                  {.regex = "a", .bad_words = {"bc"}},
                                  {.bad_words = {"b", "c"}}};
  std::vector<std::shared_ptr<const Constraint>> first;
  for (const ConstraintSpec& spec : specs) {
    const auto made = compile(spec);
    ASSERT_TRUE(made.ok()) << made.status();
    for (const auto& other : first) {
      EXPECT_NE(other, *made);
    }
    first.push_back(*made);
  }
  for (size_t i = 0; i < std::size(specs); ++i) {
    EXPECT_EQ(*compile(specs[i]), first[i]);
  }
  // What nobody uses goes in the end.
  std::weak_ptr<const Constraint> oldest = first[0];
  first.clear();
  for (size_t i = 0; i <= ConstraintStore::kMostUnused; ++i) {
    ASSERT_TRUE(compile({.regex = "x{" + std::to_string(i + 1) + "}"}).ok());
  }
  EXPECT_TRUE(oldest.expired());
  compiler.Stop();
  EXPECT_EQ(compile({.regex = "late"}).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ConstraintCompilerTest, EqualOnesThatWaitAreJoinedAndWhatNobodyWantsIsNotCompiled) {
  ConstraintCompiler compiler(
      std::make_shared<const TokenVocabulary>(std::vector<std::string>{"a", "b", "x"}));
  // The first one holds the compiler's thread at its end.
  std::promise<void> compiled, go_on;
  compiler.Compile({.regex = "a"}, [&](ConstraintCompiler::Result) {
    compiled.set_value();
    go_on.get_future().wait();
  });
  compiled.get_future().wait();
  std::atomic<int> cancelled{0};
  std::atomic<bool> wanted{true};
  for (size_t i = 0; i < ConstraintCompiler::kMostWaiting; ++i) {
    compiler.Compile(
        {.regex = "x{" + std::to_string(i + 1) + "}"},
        [&](ConstraintCompiler::Result result) {
          cancelled += result.status().code() == absl::StatusCode::kCancelled ? 1 : 0;
        },
        [&] { return wanted.load(); });
  }
  const auto compile = [&](const std::string& regex) {
    auto promise = std::make_shared<std::promise<ConstraintCompiler::Result>>();
    compiler.Compile({.regex = regex},
                     [promise](ConstraintCompiler::Result result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  };
  EXPECT_EQ(compile("b").get().status().code(), absl::StatusCode::kResourceExhausted);
  auto joined = compile("x{7}");  // no place of its own
  wanted = false;
  auto late = compile("b");  // in the place of those that have gone
  auto again = compile("b");
  EXPECT_EQ(cancelled, static_cast<int>(ConstraintCompiler::kMostWaiting));
  go_on.set_value();
  EXPECT_TRUE(joined.get().ok());
  const ConstraintCompiler::Result first = late.get();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*again.get(), *first);
}

TEST(ConstraintCompilerTest, WhatWaitsWhenItStopsHearsUnavailable) {
  ConstraintCompiler compiler(std::make_shared<const TokenVocabulary>(std::vector<std::string>{"a", "b"}));
  std::promise<absl::Status> first, second, joined;
  std::promise<void> compiled, go_on;
  compiler.Compile({.regex = "a"}, [&](const ConstraintCompiler::Result& result) {
    first.set_value(result.status());
    compiled.set_value();
    go_on.get_future().wait();
  });
  compiled.get_future().wait();
  for (std::promise<absl::Status>* const waiter : {&second, &joined}) {
    compiler.Compile({.regex = "b"}, [waiter](const ConstraintCompiler::Result& result) {
      waiter->set_value(result.status());
    });
  }
  std::thread stopping([&] { compiler.Stop(); });
  const auto is_stopping = [&] {
    absl::StatusCode late = absl::StatusCode::kOk;  // of what is kept
    compiler.Compile({.regex = "a"}, [&](const ConstraintCompiler::Result& r) { late = r.status().code(); });
    return late == absl::StatusCode::kUnavailable;
  };
  EXPECT_TRUE(Eventually(is_stopping));
  go_on.set_value();
  stopping.join();
  EXPECT_TRUE(first.get_future().get().ok());
  EXPECT_EQ(second.get_future().get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(joined.get_future().get().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace arborist::verifier
