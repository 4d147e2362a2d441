#include "lockstep/base/os/variable.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep {
namespace {

using Pair = std::pair<std::string, std::string>;

TEST(Variable, ValueOfThisProcess) {
  ASSERT_EQ(::setenv("LOCKSTEP_VARIABLE_TEST_A", "1=2", 1), 0);
  EXPECT_EQ(variable("LOCKSTEP_VARIABLE_TEST_A"), "1=2");
  EXPECT_EQ(variable("LOCKSTEP_VARIABLE_TEST_B"), "");
  EXPECT_EQ(variables_with("LOCKSTEP_VARIABLE_TEST_"),
            (std::vector<Pair>{{"LOCKSTEP_VARIABLE_TEST_A", "1=2"}}));
  EXPECT_GT(variables_with("").size(), 1U);
  ASSERT_EQ(::unsetenv("LOCKSTEP_VARIABLE_TEST_A"), 0);
}

TEST(Variable, NameAndValueOfAText) {
  EXPECT_EQ(parse_variable("A=b=c"), Pair("A", "b=c"));
  EXPECT_EQ(parse_variable("A="), Pair("A", ""));
  EXPECT_EQ(parse_variable("A"), Pair("A", ""));
}

}  // namespace
}  // namespace lockstep
