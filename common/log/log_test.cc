#include <chrono>
#include <optional>
#include <string>

#include "common/log/log_limit.h"
#include "common/log/log_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(LogLineTest, ALineIsTimeLevelEventAndItsValuesInOrder) {
  LogLine line(LogLevel::kWarning, "request");
  line.Add("id", "4f-7").Add("tokens", int64_t{12}).Add("seconds", 0.25);
  EXPECT_THAT(line.text(), MatchesRegex("time=20[0-9-]+T[0-9:.]+Z level=WARNING event=request id=4f-7 "
                                        "tokens=12 seconds=0.25"));
}

TEST(LogLineTest, AValueCannotForgeAKeyOrALine) {
  const auto value = [](const std::string& text) {
    return LogLine(LogLevel::kInfo, "x").Add("client_id", text).text();
  };
  EXPECT_THAT(value(""), EndsWith(" client_id=\"\""));
  EXPECT_THAT(value("a b"), EndsWith(" client_id=\"a b\""));
  EXPECT_THAT(value("a=b"), EndsWith(" client_id=\"a=b\""));
  EXPECT_THAT(value("a\nlevel=ERROR"), EndsWith(" client_id=\"a\\nlevel=ERROR\""));
  EXPECT_THAT(value("\" code=OK"), EndsWith(" client_id=\"\\\" code=OK\""));
  EXPECT_THAT(value("\xff\x01"), EndsWith(" client_id=\"\\xff\\x01\""));
  EXPECT_THAT(value(std::string(1000, 'a')), EndsWith("client_id=" + std::string(256, 'a')));
  EXPECT_THAT(value("a\nb"), Not(HasSubstr("\n")));
}

TEST(LogLimitTest, ABurstPassesThenTheRateAndWhatIsLeftOutIsTold) {
  LogLimit limit(/*per_second=*/2, /*burst=*/3);
  auto now = LogLimit::Clock::now();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(limit.Allow(now), 0);
  }
  EXPECT_EQ(limit.Allow(now), std::nullopt);
  EXPECT_EQ(limit.Allow(now), std::nullopt);
  now += std::chrono::milliseconds(500);
  EXPECT_EQ(limit.Allow(now), 2);
  EXPECT_EQ(limit.Allow(now), std::nullopt);
  now += std::chrono::hours(1);
  EXPECT_EQ(limit.Allow(now), 1);
  EXPECT_EQ(limit.Allow(now), 0);
  EXPECT_EQ(limit.Allow(now), 0);
  EXPECT_EQ(limit.Allow(now), std::nullopt) << "no more than the burst";
}

TEST(LogLevelTest, LinesBelowTheLevelAreNotWritten) {
  const auto written = [](LogLevel least) {
    SetLogLevel(least);
    ::testing::internal::CaptureStderr();
    LogLine(LogLevel::kInfo, "a").Write();
    LogLine(LogLevel::kWarning, "b").Write();
    LogLine(LogLevel::kError, "c").Write();
    WriteLogLine("level=INFO event=d x=1");
    WriteLogLine("level=WARNING event=e");
    WriteLogLine("level=ERROR event=f");
    SetLogLevel(LogLevel::kInfo);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string time = "time=[0-9TZ:.-]+ ";
  const std::string errors = time + "level=ERROR event=c\n" + time + "level=ERROR event=f\n";
  EXPECT_THAT(written(LogLevel::kError), MatchesRegex(errors));
  EXPECT_THAT(written(LogLevel::kWarning), HasSubstr("event=b\n"));
  EXPECT_THAT(written(LogLevel::kWarning), HasSubstr("event=e\n"));
  EXPECT_THAT(written(LogLevel::kWarning), Not(HasSubstr("INFO")));
  EXPECT_THAT(written(LogLevel::kInfo), HasSubstr("level=INFO event=a\n"));
  EXPECT_THAT(written(LogLevel::kInfo), HasSubstr("Z level=INFO event=d x=1\n"));
}

}  // namespace
}  // namespace arborist
