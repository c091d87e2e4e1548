#include "verifier/trial_pace.h"

#include <gtest/gtest.h>

namespace arborist::verifier {
namespace {

constexpr double kLeast = 1;
constexpr double kMost = 100;
constexpr double kCredit = 3;

TEST(TrialPaceTest, ATrialIsFollowedByTwoHundredTimesWhatItLost) {
  TrialPace pace;
  EXPECT_TRUE(pace.due());
  EXPECT_FALSE(pace.closed());
  pace.EndTrialOfTrees(/*lost=*/1, /*in_vain=*/true, kLeast);
  pace.Pass(199);
  EXPECT_TRUE(pace.closed());
  EXPECT_FALSE(pace.due());
  pace.Pass(1);
  EXPECT_FALSE(pace.closed());
  EXPECT_TRUE(pace.due());
}

TEST(TrialPaceTest, AfterTrialsInVainItTakesUpToFourTimesAsLong) {
  TrialPace pace;
  for (const double seconds : {200, 400, 800, 800}) {
    pace.EndTrialOfTrees(1, true, kLeast);
    pace.Pass(seconds - 1);
    EXPECT_FALSE(pace.due());
    pace.Pass(1);
    EXPECT_TRUE(pace.due());
  }
}

TEST(TrialPaceTest, ATrialThatWonKeepsNobodyFromTrees) {
  TrialPace pace;
  pace.EndTrialOfTrees(-1, /*in_vain=*/false, kLeast);
  EXPECT_FALSE(pace.due());
  EXPECT_FALSE(pace.closed());
}

TEST(TrialPaceTest, AStayInTreesIsPaidWithTheTrialThatLedThere) {
  TrialPace pace;
  pace.EnterTrees(/*lost=*/2, kLeast);
  pace.Stay(1, kCredit);
  EXPECT_EQ(pace.stay_lost(), 1);
  pace.LeaveTrees(kMost, kLeast);
  pace.Pass(599);
  EXPECT_TRUE(pace.closed());
  pace.Pass(1);
  EXPECT_FALSE(pace.closed());
}

TEST(TrialPaceTest, WhatIsWonPaysForWhatWasLostAndForSomeOfWhatComes) {
  TrialPace pace;
  pace.EnterTrees(2, kLeast);
  pace.Stay(-50, kCredit);
  EXPECT_EQ(pace.stay_lost(), 0);
  pace.Stay(6, kCredit);
  EXPECT_EQ(pace.stay_lost(), 6);
  pace.LeaveTrees(kMost, kLeast);
  pace.Pass(599);
  EXPECT_TRUE(pace.closed());
  pace.Pass(1);
  EXPECT_FALSE(pace.closed());
}

TEST(TrialPaceTest, AStayThatWonIsFollowedByTheLeastAlone) {
  TrialPace pace;
  pace.EndTrialOfTrees(2, /*in_vain=*/false, kLeast);
  pace.EnterTrees(2, kLeast);
  pace.Stay(-2, kCredit);
  pace.LeaveTrees(kMost, kLeast);
  EXPECT_FALSE(pace.closed());
  EXPECT_FALSE(pace.due());
  pace.Pass(kLeast);
  EXPECT_TRUE(pace.due());
}

TEST(TrialPaceTest, TextsThatLostMoreThanTheMostAreFollowedByOthersWithoutTrees) {
  TrialPace pace;
  pace.EnterTrees(0, kLeast);
  pace.StayOfTexts(2, kCredit);
  pace.EndTexts(/*most=*/2);
  EXPECT_TRUE(pace.in_trees());
  pace.StayOfTexts(1, kCredit);
  EXPECT_TRUE(pace.in_trees()) << "in the middle the beginning is paid for";
  pace.EndTexts(2);
  EXPECT_FALSE(pace.in_trees());
  pace.Pass(599);
  EXPECT_TRUE(pace.closed());
  pace.Pass(1);
  EXPECT_FALSE(pace.closed());
  EXPECT_TRUE(pace.due());
}

TEST(TrialPaceTest, WhatTextsWonPaysForOneBeginningAndNotForMore) {
  TrialPace pace;
  pace.EnterTrees(0, kLeast);
  pace.StayOfTexts(-50, kCredit);
  pace.StayOfTexts(5, kCredit);
  pace.EndTexts(2);
  EXPECT_TRUE(pace.in_trees());
  pace.StayOfTexts(5, kCredit);
  pace.EndTexts(2);
  EXPECT_FALSE(pace.in_trees());
}

TEST(TrialPaceTest, HiccupsAreForgivenUntilTheyAreTooMany) {
  TrialPace pace;
  EXPECT_EQ(pace.Late(0.3), 0);
  EXPECT_EQ(pace.Late(0.3), 0);
  EXPECT_EQ(pace.Late(0.3), 0.3);
  pace.Pass(200);
  EXPECT_EQ(pace.Late(0.6), 0);
  EXPECT_EQ(pace.Late(0.1), 0.1);
  pace.EnterTrees(0, kLeast);
  pace.Stay(-1, kCredit);
  EXPECT_EQ(pace.Late(0.1), 0);
}

TEST(TrialPaceTest, NoMoreThanTheMostIsCharged) {
  TrialPace pace;
  pace.EnterTrees(0, kLeast);
  pace.Stay(1000, kCredit);
  pace.LeaveTrees(kMost, kLeast);
  pace.Pass(200 * kMost);
  EXPECT_FALSE(pace.closed());
}

}  // namespace
}  // namespace arborist::verifier
