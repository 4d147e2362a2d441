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
