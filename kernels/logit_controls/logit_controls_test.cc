#include "kernels/logit_controls/logit_controls.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/logit_controls/control_cases.h"
#include "kernels/logit_controls/control_rule.h"
#include "kernels/sample_target/sample_target.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/random_tensor.h"

namespace arborist::kernels {
namespace {

using testing::Poisoned;
using testing::Random;
using testing::SameBits;

std::vector<float> Controlled(const ControlCase& c) {
  std::vector<float> choice = Poisoned(c.rows() * c.stride);
  ThreadPool pool(2);
  const absl::Status status = cpu::LogitControls(c.Args(choice.data()), {.threads = &pool});
  EXPECT_TRUE(status.ok()) << status;
  return choice;
}

// Five tokens, one row of one sequence without any control.
ControlCase Plain() {
  ControlCase c = {.vocabulary = 5, .stride = 5, .raw = {4, -2, 1, -0.0f, 3}};
  c.row = {{.sequence = 0, .mask = -1, .entries = {}}};
  c.sequence = {{}};
  return c;
}

TEST(LogitControlsTest, BiasComesBeforeTheMaskAndTheMaskBeforePenalties) {
  ControlCase c = Plain();
  c.sequence = {{.repetition = 2, .presence = 0.5f, .frequency = 0.25f, .entries = {0, 4}}};
  c.entry = {{.token = TokenId{0}, .bias = 2, .output_count = 3, .occurred = 1},
             {.token = TokenId{1}, .occurred = 1},
             {.token = TokenId{2}, .bias = -5, .output_count = 1, .occurred = 1},
             {.token = TokenId{4}, .bias = 100, .output_count = 1, .occurred = 1, .forbidden = 1}};
  // (4 + 2) / 2 - (0.5 + 0.75); -2 * 2: in the prompt only; (1 - 5) * 2 - 0.75; untouched; forbidden.
  EXPECT_EQ(Controlled(c), (std::vector<float>{1.75f, -4, -8.75f, 0, kForbiddenLogit}));
  c.mask = {0b01110};
  c.row[0].mask = 0;
  EXPECT_EQ(Controlled(c), (std::vector<float>{kForbiddenLogit, -4, -8.75f, 0, kForbiddenLogit}));
}

TEST(LogitControlsTest, ARowsEntryTakesThePlaceOfItsSequencesAndStartsFromTheRawLogit) {
  ControlCase c = Plain();
  c.sequence = {{.repetition = 2, .presence = 0, .frequency = 1, .entries = {0, 2}}};
  c.entry = {{.token = TokenId{0}, .bias = 1, .output_count = 1, .occurred = 1},
             {.token = TokenId{4}, .occurred = 1},
             {.token = TokenId{0}, .bias = 1, .output_count = 2, .occurred = 1},
             {.token = TokenId{2}, .output_count = 1, .occurred = 1},
             {.token = TokenId{3}, .forbidden = 1}};
  c.row[0].entries = {2, 3};
  EXPECT_EQ(Controlled(c), (std::vector<float>{0.5f, -2, -0.5f, kForbiddenLogit, 1.5f}));
}

TEST(LogitControlsTest, EqualsTheOracleBitForBitForAnyThreadsRowsAndIsa) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t rows : {0, 1, 3, 33}) {
    for (const int64_t vocabulary : {1, 31, 32, 33, 1000, 8192, 8193, 20011}) {
      for (const int64_t gap : {0, 5}) {
        const ControlCase c =
            ControlCases(random).Draw(vocabulary > 9000 ? std::min<int64_t>(rows, 3) : rows, vocabulary, gap);
        std::vector<float> want = Poisoned(c.rows() * c.stride);
        ASSERT_TRUE(reference::LogitControls(c.Args(want.data()), {}).ok());
        testing::ForEveryIsaAndThreadCount([&](StreamView stream) {
          std::vector<float> got = Poisoned(c.rows() * c.stride);
          const absl::Status status = cpu::LogitControls(c.Args(got.data()), stream);
          ASSERT_TRUE(status.ok()) << status;
          EXPECT_TRUE(SameBits(got, want)) << rows << " rows, vocabulary " << vocabulary;
        });
        if (c.rows() > 0) {
          const int64_t r = random.Uniform(0, c.rows() - 1);
          EXPECT_TRUE(
              SameBits(Controlled(c.Alone(r)), std::span<const float>(want).subspan(r * c.stride, c.stride)));
        }
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

TEST(LogitControlsTest, RowsWithoutControlsAreTheSameBits) {
  Random random;
  ControlCase c = ControlCases(random).Draw(4, 700, 3);
  c.row.assign(4, RowControls{});
  std::vector<float> want = c.raw;
  for (int64_t r = 0; r < 4; ++r) {
    std::fill_n(want.begin() + r * c.stride + 700, 3, std::nanf(""));
  }
  EXPECT_TRUE(SameBits(Controlled(c), want));
}

TEST(LogitControlsTest, ABrokenLogitStaysBrokenBehindAnyControl) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    ControlCase c = Plain();
    c.raw = {bad, bad, 1, 1, bad};
    c.mask = {0b00100};
    c.row[0] = {.sequence = 0, .mask = 0, .entries = {0, 2}};
    c.entry = {{.token = TokenId{1}, .forbidden = 1},
               {.token = TokenId{4}, .output_count = 1, .occurred = 1}};
    const std::vector<float> got = Controlled(c);
    for (const int at : {0, 1, 4}) {
      EXPECT_FALSE(std::isfinite(got[at]));
    }
    EXPECT_EQ(got[3], kForbiddenLogit);
  }
}

TEST(LogitControlsTest, NoControlMakesARowBreakOrPassesBelowTheForbidden) {
  const float most = std::numeric_limits<float>::max();
  for (const float raw : {most, -most, 1.0f, -1.0f}) {
    for (const float bias : {most, -most}) {
      for (const float repetition : {1e-38f, most}) {
        for (const float penalty : {most, -most}) {
          const float value = ControlledLogit(
              raw, true, {.token = TokenId{0}, .bias = bias, .output_count = 1, .occurred = 1},
              {.repetition = repetition, .presence = penalty, .frequency = 0, .entries = {}});
          EXPECT_TRUE(value >= -kControlledLogitMax && value <= kControlledLogitMax);
        }
      }
    }
  }
}

// One to three tokens are allowed, all with the worst logits of the row.
TEST(LogitControlsTest, AForbiddenTokenIsNeverSampledWhileOneIsAllowed) {
  Random random;
  SCOPED_TRACE(random.seed());
  constexpr int64_t kVocabulary = 500;
  for (const float temperature : {0.0f, 0.01f, 1.0f, 100.0f, 1e30f}) {
    for (const int32_t top_k : {0, 1, 50, 499}) {
      for (const float top_p : {1.0f, 0.5f}) {
        for (const float min_p : {0.0f, 0.05f}) {
          ControlCase c = ControlCases(random).Draw(1, kVocabulary, 0);
          c.raw = random.Normals(kVocabulary, 8);
          c.mask.assign(c.words(), 0);
          c.row = {{.sequence = 0, .mask = 0, .entries = {}}};
          for (int64_t i = random.Uniform(1, 3); i > 0; --i) {
            const int64_t allowed = random.Uniform(0, kVocabulary - 1);
            c.mask[allowed / 32] |= 1u << (allowed % 32);
            c.raw[allowed] = -60;
          }
          for (LogitEntry& entry : c.entry) {
            entry.forbidden = 0;  // the only allowed token may have an entry
          }
          const std::vector<float> choice = Controlled(c);
          const SamplingParams params = {.temperature = temperature,
                                         .top_k = top_k,
                                         .top_p = top_p,
                                         .min_p = min_p,
                                         .seed = random.engine()()};
          TokenId chosen{-1};
          const int32_t position = 5, index = 0;
          alignas(64) static std::byte scratch[1 << 16];
          ASSERT_LE(SampleTargetScratchBytes(kVocabulary, 1), sizeof(scratch));
          ThreadPool pool(1);
          ASSERT_TRUE(cpu::SampleTarget({.logits = {choice.data(), 1, kVocabulary, kVocabulary},
                                         .position = {&position, 1},
                                         .params_index = {&index, 1},
                                         .params = {&params, 1},
                                         .chosen = {&chosen, 1},
                                         .log_prob = {},
                                         .scratch = {scratch, sizeof(scratch)}},
                                        {.threads = &pool})
                          .ok());
          EXPECT_TRUE(IsAllowed(c.mask.data(), Raw(chosen)))
              << Raw(chosen) << " at T " << temperature << " top_k " << top_k << " top_p " << top_p;
        }
      }
    }
  }
}

void ExpectRefused(const ControlCase& c, const std::string& message) {
  std::vector<float> choice(c.rows() * c.stride);
  EXPECT_EQ(ValidateLogitControls(c.Args(choice.data())).message(), message);
}

TEST(LogitControlsTest, WrongContentsAreRefusedByName) {
  const auto with = [](auto change) {
    ControlCase c = Plain();
    c.entry = {{.token = TokenId{1}}, {.token = TokenId{3}}};
    c.row[0].entries = {0, 2};
    change(c);
    return c;
  };
  ExpectRefused(with([](ControlCase&) {}), "");
  ExpectRefused(with([](ControlCase& c) { c.row[0].sequence = 1; }),
                "row[0].sequence=1, expected -1 or an index below 1");
  ExpectRefused(with([](ControlCase& c) { c.row[0].mask = 0; }),
                "row[0].mask=0, expected -1 or an index below 0");
  ExpectRefused(with([](ControlCase& c) { c.row[0].entries.count = 3; }),
                "row[0].entries={0, 3}, expected a run inside the 2 entries");
  ExpectRefused(with([](ControlCase& c) { c.entry[1].token = TokenId{1}; }),
                "entry[1].token=1, expected an id in [2, 5), above the one before in its run");
  ExpectRefused(with([](ControlCase& c) { c.entry[1].token = TokenId{5}; }),
                "entry[1].token=5, expected an id in [2, 5), above the one before in its run");
  ExpectRefused(with([](ControlCase& c) { c.entry[0].bias = INFINITY; }),
                "entry[0].bias=inf, expected a finite value");
  ExpectRefused(with([](ControlCase& c) { c.entry[0].output_count = -1; }),
                "entry[0].output_count=-1, expected >= 0");
  ExpectRefused(with([](ControlCase& c) { c.sequence[0].repetition = 0; }),
                "sequence[0].repetition=0, expected a finite value > 0");
  ExpectRefused(with([](ControlCase& c) { c.sequence[0].presence = INFINITY; }),
                "sequence[0].presence=inf, expected a finite value");
}

TEST(LogitControlsTest, WrongShapesAreRefusedByName) {
  const ControlCase c = Plain();
  std::vector<float> choice(5);
  LogitControlsArgs args = c.Args(choice.data());
  args.choice.data = const_cast<float*>(c.raw.data());
  EXPECT_EQ(ValidateLogitControlsShapes(args).message(), "choice is raw, expected other memory");
  args = c.Args(choice.data());
  args.row.size = 0;
  EXPECT_EQ(ValidateLogitControlsShapes(args).message(), "row.size=0, expected raw.rows=1");
  args = c.Args(choice.data());
  args.mask = {nullptr, 1, 0, 0};
  EXPECT_EQ(ValidateLogitControlsShapes(args).message(),
            "mask.columns=0, expected at least 1 words, and at most the row stride");
  args = c.Args(choice.data());
  args.choice.columns = 4;
  EXPECT_EQ(ValidateLogitControlsShapes(args).message(),
            "choice=[1, 4], expected [1, 5] with a stride of at least the columns");
}

}  // namespace
}  // namespace arborist::kernels
