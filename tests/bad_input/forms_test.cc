// Forms that the verifier refuses once it looks at them: through the coordinator, as a client meets them, and
// in Open.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "tests/bad_input/processes.h"
#include "tests/bad_input/verify_stream.h"

namespace arborist::bad_input {
namespace {

struct BadForm {
  const char* name;
  std::string sampling;  // the same fields in a request and in Open's sampling
  std::string field;
  std::string message;  // after "field=" (see Field)
};

const std::vector<BadForm>& BadForms() {
  static const auto* const table = new std::vector<BadForm>{
      {"a pattern that does not close", "regex: '(ab'", "regex",
       "(refused), byte 0 (\"(ab\") is a group that is not closed, expected a form that "
       "common/grammar/README.md lists"},
      {"a class that does not close", "regex: '[a'", "regex",
       "(refused), byte 0 (\"[a\") is a class that is not closed, expected a form that "
       "common/grammar/README.md lists"},
      {"a pattern that looks ahead", "regex: 'a(?=b)b'", "regex",
       "(refused), byte 1 (\"(?=b)b\") is not supported, expected a group, (?:...) or (?<name>...)"},
      {"a pattern that refers back", "regex: '(a)\\\\1'", "regex",
       "(refused), byte 3 (\"\\1\") is an escape that is not supported, expected a form that "
       "common/grammar/README.md lists"},
      {"a pattern that repeats nothing", "regex: '*a'", "regex",
       "(refused), byte 0 (\"*a\") repeats nothing, expected a form that common/grammar/README.md lists"},
      {"a pattern of a billion states", "regex: '((a{1000}){1000}){1000}'", "regex",
       "(refused), becomes more than 200000 states, expected smaller repetition counts"},
      // Twelve bytes of them end inside a character.
      {"a pattern of wide characters", "regex: '(?=x€€€€€)'", "regex",
       "(refused), byte 0 (\"(?=x€€\") is not supported, expected a group, (?:...) or (?<name>...)"},
      {"a schema of wide characters", "json_schema: 'x€€€€€€'", "json_schema",
       "(refused), is no JSON: byte 0 (\"x€€€\") is no JSON value, expected a form that "
       "common/grammar/README.md lists"},
      {"a schema that does not close", "json_schema: '{\"type\": '", "json_schema",
       "(refused), is no JSON: byte 9 (the end) is no JSON value, expected a form that "
       "common/grammar/README.md lists"},
      {"a schema that is a list", "json_schema: '[]'", "json_schema",
       "(refused), #: is no schema, expected an object, true or false"},
      {"a schema of an unknown type", "json_schema: '{\"type\": \"colour\"}'", "json_schema",
       "(refused), #/type: expected object, array, string, number, integer, boolean, null or a list of them"},
      {"a schema that refers elsewhere", "json_schema: '{\"$ref\": \"http://x/y\"}'", "json_schema",
       "(refused), http://x/y: is no reference within the schema, expected #/..."},
      {"a schema that refers to itself alone", "json_schema: '{\"$ref\": \"#\"}'", "json_schema",
       "(refused), a definition refers to itself before anything is written, expected a form that "
       "common/grammar/README.md lists"},
      {"a schema that nothing fulfils", "json_schema: '{\"enum\": []}'", "json_schema",
       "(refused), #/enum: expected a list of values, not empty"},
      {"a schema with a keyword that is not known to restrict",
       "json_schema: '{\"type\": \"object\", \"dependentRequired\": {\"a\": [\"b\"]}}'", "json_schema",
       "(refused), #/dependentRequired: is not supported, expected a form that common/grammar/README.md "
       "lists"},
  };
  return *table;
}

TEST(BadForms, TheCoordinatorsClientLearnsWhatTheVerifierRefused) {
  for (const BadForm& bad : BadForms()) {
    SCOPED_TRACE(bad.name);
    v1::GenerateRequest request;
    request.set_text("x");
    Overlay(bad.sampling, request);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = TheProcesses().coordinator().Generate(&context, request);
    v1::GenerateResponse response;
    EXPECT_FALSE(stream->Read(&response));
    ExpectRefused(FromGrpcStatus(stream->Finish()), kVerifierOrigin, Field(bad.field, bad.message));
    ExpectStillServes();
  }
}

TEST(BadForms, AnOpenIsRefusedAndNothingElse) {
  for (const BadForm& bad : BadForms()) {
    SCOPED_TRACE(bad.name);
    VerifyStream stream;
    stream.Do(absl::StrCat("open { sequence { sampling { ", bad.sampling, " } } }"));
    ExpectRefused(stream.End(), kVerifierOrigin, Field("sequence.sampling." + bad.field, bad.message));
    ExpectStillServes();
  }
}

}  // namespace
}  // namespace arborist::bad_input
