#include "lockstep/base/suggest.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::vector<std::string> solvers = {"sgdm", "adam", "rmsprop", "adamw"};

TEST(Suggest, FindsTheNearestName) {
  EXPECT_EQ(nearest_name("solvr", {"seed", "solver", "shuffle"}), "solver");
  EXPECT_EQ(nearest_name("sgd", solvers), "sgdm");
  EXPECT_EQ(nearest_name("adma", solvers), "adam");  // a swap counts as one edit
  EXPECT_EQ(nearest_name("adamw", solvers), "adamw");
}

TEST(Suggest, IgnoresCaseAndHyphens) {
  EXPECT_EQ(nearest_name("MiniBatch-Size", {"max_epochs", "mini_batch_size"}), "mini_batch_size");
  EXPECT_EQ(nearest_name("RMSProp", solvers), "rmsprop");
}

TEST(Suggest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("momentum", solvers), "");
  EXPECT_EQ(nearest_name("sgdm", {}), "");
  EXPECT_EQ(nearest_name("", solvers), "");
  EXPECT_EQ(nearest_name("abc", {"xyc"}), "");  // two of three differ
}

TEST(Suggest, KnowsWordsOfOtherSystems) {
  const std::vector<std::string> fields = {"solver", "initial_learning_rate",
                                           "learning_rate_schedule", "l2", "max_epochs"};
  EXPECT_EQ(nearest_name("learning_rate", fields), "initial_learning_rate");
  EXPECT_EQ(nearest_name("lr", fields), "initial_learning_rate");
  EXPECT_EQ(nearest_name("optimizer", fields), "solver");
  EXPECT_EQ(nearest_name("weight_decay", fields), "l2");
  EXPECT_EQ(nearest_name("Conv2d", {"convolution1d", "convolution2d"}), "convolution2d");
  EXPECT_EQ(nearest_name("units", {"name", "out_features"}), "out_features");  // of a missing field
  EXPECT_EQ(nearest_name("lr", solvers), "");
  // A name that is there is itself.
  EXPECT_EQ(nearest_name("Scheduler", {"learning_rate_schedule", "scheduler"}), "scheduler");
  EXPECT_EQ(nearest_name("rate", {"probability", "rates"}), "rates");
}

TEST(Suggest, NamesThatContainTheGivenOne) {
  EXPECT_EQ(suggest("training", {"train", "test", "targets"}), "did you mean `train`?");
  EXPECT_EQ(suggest("masks", {"time_masks", "channel_masks", "hue"}),
            "did you mean `time_masks` or `channel_masks`?");
  EXPECT_EQ(suggest("decay", {"layer_decay", "average_decay", "gradient_decay"}),
            "did you mean `layer_decay`, `average_decay` or `gradient_decay`?");
  EXPECT_EQ(suggest("class_names", {"name", "units"}), "known names: name, units");
  // Short words are part of too many.
  EXPECT_EQ(suggest("age", {"average", "b"}), "known names: average, b");
}

TEST(Suggest, SaysWhatIsKnownOtherwise) {
  EXPECT_EQ(suggest("adm", solvers), "did you mean `adam`?");
  EXPECT_EQ(suggest("lion", {"sgdm", "adam"}), "known names: sgdm, adam");
  std::vector<std::string> many;
  for (int i = 1; i <= 90; ++i) many.push_back("n" + std::to_string(i));
  const std::string text = suggest("something else", many);
  EXPECT_TRUE(text.ends_with(", n19, n20 and 70 more")) << text;
  EXPECT_EQ(suggest("lion", {}), "");
}

}  // namespace
}  // namespace lockstep
