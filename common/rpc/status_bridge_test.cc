#include "common/rpc/status_bridge.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

TEST(StatusBridgeTest, OkStaysOkBothWays) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus(), "verifier").ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
  EXPECT_TRUE(WithReason(absl::OkStatus(), "X").ok());
}

TEST(StatusBridgeTest, DetailsSurviveTheWireAndBack) {
  absl::Status status = FieldError("tree_nodes", "300", "at most 255");
  status = WithRetryDelay(status, std::chrono::milliseconds(1250));
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status, "verifier"));
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back.message(), "tree_nodes=300, expected at most 255");
  EXPECT_EQ(ReasonOf(back), "BAD_REQUEST");
  EXPECT_EQ(OriginOf(back), "verifier");
  EXPECT_EQ(RetryDelayOf(back), std::chrono::milliseconds(1250));
  ASSERT_EQ(FieldViolationsOf(back).size(), 1u);
  EXPECT_EQ(FieldViolationsOf(back)[0].field, "tree_nodes");
}

TEST(StatusBridgeTest, OriginOfTheFirstServiceStays) {
  const absl::Status of_verifier = FromGrpcStatus(ToGrpcStatus(absl::InternalError("broke"), "verifier"));
  const absl::Status passed_on = FromGrpcStatus(ToGrpcStatus(of_verifier, "drafter"));
  EXPECT_EQ(OriginOf(passed_on), "verifier");
}

TEST(StatusBridgeTest, PlainErrorsGetReasonOriginAndField) {
  const absl::Status status =
      FromGrpcStatus(ToGrpcStatus(absl::InvalidArgumentError("top_p=2, expected (0, 1]"), "verifier"));
  EXPECT_EQ(ReasonOf(status), "BAD_REQUEST");
  ASSERT_EQ(FieldViolationsOf(status).size(), 1u);
  EXPECT_EQ(FieldViolationsOf(status)[0].field, "top_p");
  EXPECT_EQ(ReasonOf(FromGrpcStatus(ToGrpcStatus(absl::AbortedError("x"), "verifier"))), "TAKEN_OVER");
  EXPECT_EQ(ReasonOf(FromGrpcStatus(ToGrpcStatus(UnsupportedField("echo"), "c"))), "UNSUPPORTED_FIELD");
}

TEST(StatusBridgeTest, WireFormIsGoogleRpcStatusThatOthersCanRead) {
  const grpc::Status status = ToGrpcStatus(FieldError("seed", "x", "a number"), "coordinator");
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 3);
  EXPECT_EQ(details.message(), "seed=x, expected a number");
  bool found = false;
  for (const auto& detail : details.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info)) {
      found = true;
      EXPECT_EQ(info.domain(), "arborist");
      EXPECT_EQ(info.metadata().at("origin"), "coordinator");
    }
  }
  EXPECT_TRUE(found);
}

TEST(StatusBridgeTest, LongMessagesAreCutSoThatTrailersFit) {
  const grpc::Status status = ToGrpcStatus(absl::InvalidArgumentError(std::string(100000, 'x')), "verifier");
  EXPECT_EQ(status.error_message().size(), 1024u);
  EXPECT_LT(status.error_message().size() + status.error_details().size(), 8192u);
}

TEST(StatusBridgeTest, UnreadableDetailsAreDropped) {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone", "\xff\xff not a proto"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "gone");
  EXPECT_EQ(ReasonOf(status), "");
  EXPECT_EQ(OriginOf(status), "");
}

TEST(StatusBridgeTest, APrefixOfAFieldIsTakenOffAndTheRestStays) {
  const absl::Status inner =
      WithOrigin(FieldError("sequence.sampling.regex", "(", "a group that ends"), "verifier");
  const absl::Status status = WithoutFieldPrefix(inner, "sequence.sampling.");
  EXPECT_EQ(status.message(), "regex=(, expected a group that ends");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(FieldViolationsOf(status).size(), 1u);
  EXPECT_EQ(FieldViolationsOf(status)[0].field, "regex");
  EXPECT_EQ(FieldViolationsOf(status)[0].description, status.message());
  EXPECT_EQ(OriginOf(status), "verifier");
  EXPECT_EQ(ReasonOf(status), reason::kBadRequest);
  EXPECT_EQ(WithoutFieldPrefix(inner, "sampling."), inner);
  const absl::Status bare = absl::UnimplementedError("sequence.sampling.regex is not there");
  EXPECT_EQ(WithoutFieldPrefix(bare, "sequence.sampling."), absl::UnimplementedError("regex is not there"));
  EXPECT_EQ(WithoutFieldPrefix(bare, "sampling."), bare);
}

TEST(StatusBridgeTest, AnUnsupportedValueNamesFieldValueAndExpectation) {
  const absl::Status status = UnsupportedField("media", "1", "none");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(), "media=1, expected none");
  EXPECT_EQ(FieldViolationsOf(status)[0].field, "media");
  EXPECT_EQ(ReasonOf(status), reason::kUnsupportedField);
}

TEST(StatusBridgeTest, ALongMessageIsCutBetweenCharacters) {
  std::string text = "x";
  while (text.size() < 2000) {
    text += "\xE6\xBC\xA2";
  }
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(FieldError("regex", text, "less"), "verifier"));
  EXPECT_FALSE(ReasonOf(back).empty()) << "the details can be read";
  EXPECT_LE(back.message().size(), 1024u);
  EXPECT_NE(back.message().back(), '\xE6');
  EXPECT_LT(FieldViolationsOf(back)[0].description.size(), 1025u);
}

// A proto's string that is not UTF-8 cannot be read: the error would arrive without reason, origin and field.
TEST(StatusBridgeTest, BytesThatAreNoCharacterAreShownAsQuestionMarks) {
  const struct {
    const char* bytes;
    const char* shown;
  } cases[] = {{"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
               {"a\xE2\x82", "a??"},
               {"\xE2\x82 b", "?? b"},
               {"\x80\xFF", "??"},
               {"\xC0\x80", "??"},
               {"\xED\xA0\x80", "???"},
               {"\xF0\x8F\xBF\xBF", "????"},
               {"\xF4\x90\x80\x80", "????"},
               {"\xED\x9F\xBF\xF4\x8F\xBF\xBF", "\xED\x9F\xBF\xF4\x8F\xBF\xBF"}};
  for (const auto& [bytes, shown] : cases) {
    const std::string message = absl::StrCat("regex=", shown, ", expected less");
    for (const absl::Status& error :
         {FieldError("regex", bytes, "less"),
          absl::InvalidArgumentError(absl::StrCat("regex=", bytes, ", expected less"))}) {
      const absl::Status back = FromGrpcStatus(ToGrpcStatus(error, "verifier"));
      EXPECT_EQ(back.message(), message);
      EXPECT_EQ(OriginOf(back), "verifier");
      ASSERT_EQ(FieldViolationsOf(back).size(), 1u);
      EXPECT_EQ(FieldViolationsOf(back)[0].field, "regex");
      EXPECT_EQ(FieldViolationsOf(back)[0].description, message);
    }
  }
}

TEST(StatusBridgeTest, AValueOfAnyLengthLeavesFieldAndExpectationReadable) {
  for (const std::string one : {"m", "\xC3\xA9", "\xE6\xBC\xA2", "\xF0\x9F\x98\x80", "\xFF", "\x80"}) {
    for (int lead = 0; lead < 4; ++lead) {
      std::string value(lead, 'x');
      for (int i = 0; i < 2000; ++i) {
        value += one;
      }
      const absl::Status back =
          FromGrpcStatus(ToGrpcStatus(UnsupportedField("media", value, "none"), "coordinator"));
      const std::string message(back.message());
      EXPECT_THAT(message, testing::StartsWith("media=" + std::string(lead, 'x')));
      EXPECT_THAT(message, testing::HasSubstr(" ... "));
      EXPECT_THAT(message, testing::EndsWith(", expected none"));
      EXPECT_LE(message.size(), 1024u);
      EXPECT_GT(message.size(), 1015u);
      ASSERT_EQ(FieldViolationsOf(back).size(), 1u) << "the details can be read";
      EXPECT_EQ(FieldViolationsOf(back)[0].description, message);
    }
  }
}

}  // namespace
}  // namespace arborist
