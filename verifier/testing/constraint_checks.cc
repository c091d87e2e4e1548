#include "verifier/testing/constraint_checks.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/testing/small_shapes.h"
#include "verifier/testing/drive.h"

namespace arborist::verifier {
namespace {

using kernels::testing::Small;

int Nodes() { return Small(16, 7); }

TestVerifierOptions OptionsFor(const Subject& subject) {
  TestVerifierOptions options = OptionsOf(subject);
  options.verifier.max_context = 300;
  options.verifier.max_tree_nodes = Nodes();
  options.verifier.max_sequences = 2;
  options.verifier.max_rows = Small(64, 33);
  options.verifier.max_logits_rows = 2 * (Nodes() + 1) + 1;
  return options;
}

ReplayDrafter Replay(const OpenArgs& args, const Decoded& said, const Subject& subject, uint64_t seed) {
  std::vector<TokenId> text = args.prompt;
  text.insert(text.end(), said.tokens.begin(), said.tokens.end());
  return {std::move(text), subject.vocabulary, Nodes(), seed};
}

void ExpectSame(const Decoded& alone, const Decoded& beside, uint64_t seed) {
  EXPECT_TRUE(beside.closed.ok()) << beside.closed << ", seed " << seed;
  EXPECT_EQ(beside.tokens, alone.tokens) << "seed " << seed;
  EXPECT_EQ(beside.log_probs, alone.log_probs) << "seed " << seed;
  EXPECT_EQ(beside.top_log_probs, alone.top_log_probs) << "seed " << seed;
  EXPECT_EQ(beside.finish, alone.finish) << "seed " << seed;
}

// Ids that the other controls leave, as a mask; empty: all.
Constraint::Mask AllowedBy(const SamplingControls& controls, int vocabulary) {
  Constraint::Mask mask;
  if (!controls.allowed_token_ids.empty()) {
    mask.resize(static_cast<size_t>(vocabulary + 31) / 32);
    for (const TokenId id : controls.allowed_token_ids) {
      mask[static_cast<size_t>(Raw(id)) / 32] |= uint32_t{1} << (Raw(id) % 32);
    }
  }
  return mask;
}

// Independent of the masks: the text's own tokens, one after the other.
void ExpectTheForm(const Decoded& text, const OpenArgs& args, const ConstraintCase& with, int vocabulary) {
  const Constraint& constraint = *args.constraint;
  std::optional<Constraint::State> state = constraint.Start();
  for (const TokenId token : text.tokens) {
    state = constraint.Advance(*state, token);
    ASSERT_TRUE(state.has_value());
  }
  switch (text.finish) {
    case FinishReason::kStopId:
      EXPECT_TRUE(constraint.Accepts(*state));
      EXPECT_TRUE(constraint.IsStop(text.tokens.back()));
      break;
    case FinishReason::kConstraint: {
      EXPECT_TRUE(constraint.Accepts(*state) || with.name == "DeadEnd");
      const bool held_back = static_cast<int>(text.tokens.size()) < args.controls.min_tokens;
      EXPECT_EQ(constraint.AllowsAny(*state, AllowedBy(args.controls, vocabulary), held_back), false)
          << "it might have gone on";
      break;
    }
    default:
      EXPECT_EQ(text.tokens.size(), static_cast<size_t>(args.max_tokens));
  }
}

}  // namespace

void CheckConstrainedText(Subject subject, const ConstraintCase& with, int tokens) {
  subject.controls = with.controls;
  subject.stop_ids = with.spec.stop_ids;
  subject.constraint = CompileSmall(with.spec, subject.vocabulary);
  CheckTextIsTheSame(subject, tokens);
}

int CheckEveryTextHasTheForm(const Subject& subject, const ConstraintCase& with, int texts, int tokens) {
  TestVerifier verifier(OptionsFor(subject));
  int other = 0, ended = 0;
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(texts); ++seed) {
    OpenArgs free = MakeOpen("free", RandomTokens(50, subject.vocabulary, seed), tokens, Nodes());
    free.sampling = {.temperature = seed % 2 == 0 ? 0.0f : 1.0f, .seed = seed};
    OpenArgs formed = free;
    formed.key.request_id = "formed";
    Constrain(with, formed, subject.vocabulary);
    const Decoded said = DecodePlain(*verifier, free);
    const Decoded alone = DecodePlain(*verifier, formed);
    EXPECT_EQ(said.tokens.size(), static_cast<size_t>(tokens)) << said.closed;

    Decoded neighbour;
    std::thread owner([&] { neighbour = DecodeTrees(*verifier, free, Replay(free, said, subject, seed)); });
    const Decoded text = DecodeTrees(*verifier, formed, Replay(formed, said, subject, seed));
    owner.join();
    ExpectSame(said, neighbour, seed);
    ExpectSame(alone, text, seed);
    ExpectTheForm(text, formed, with, subject.vocabulary);
    if (testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return ended;
    }
    other += text.tokens != said.tokens ? 1 : 0;
    ended += text.finish != FinishReason::kMaxTokens ? 1 : 0;
  }
  EXPECT_GT(other, 0) << "the form changes nothing";
  return ended;
}

}  // namespace arborist::verifier
