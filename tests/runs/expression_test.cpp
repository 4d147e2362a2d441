#include "lockstep/runs/jobs/expression.h"

#include <cmath>

#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;
using Definitions = std::map<std::string, Variables::Definition>;

TEST(Expression, HasTheFunctionsItNames) {
  const Variables v(Definitions{{"x", 2.0}, {"depth", 3.0}});
  const std::pair<const char*, double> cases[] = {{"1 + 2 * 3", 7},
                                                  {"(1 + 2) * 3", 9},
                                                  {"2 ^ 10", 1024},
                                                  {"-x", -2},
                                                  {"round(16 / sqrt(depth))", 9},
                                                  {"round(2.5)", 3},
                                                  {"round(-2.5)", -3},
                                                  {"floor(2.7)", 2},
                                                  {"ceil(2.1)", 3},
                                                  {"min(3, 1, 2)", 1},
                                                  {"max(3, x)", 3},
                                                  {"abs(-4)", 4},
                                                  {"log(exp(1))", 1},
                                                  {"pow(x, 3)", 8},
                                                  {"x > 1 ? 10 : 20", 10},
                                                  {"1e3", 1000},
                                                  {"1.5e-2", 0.015}};
  for (const auto& [text, value] : cases) {
    EXPECT_DOUBLE_EQ(v.evaluate(text, "here"), value) << text;
  }
}

TEST(Expression, RefusesNamingThePlace) {
  const Variables v(Definitions{{"depth", 1.0}});
  for (const char* text : {"", "1 +", "1 / 0", "sqrt(-1)", "log(0)", "exp(1000)", "0 / 0", "1, 2",
                           "depth = 2", "\"a\"", "round()", "pow(1)", "(1", "1)", "1 1", "@"}) {
    EXPECT_CONTAINS(refusal<InvalidArgument>([&] { v.evaluate(text, "a.b"); }), "[a.b]") << text;
  }
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { v.evaluate("2 * dpeth", "a"); }),
                  "did you mean `depth`?");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { v.evaluate("rond(2)", "a"); }),
                  "did you mean `round`?");
  EXPECT_THROW(v.evaluate(std::string(100000, '('), "a"), InvalidArgument);
  EXPECT_EQ(v.evaluate("depth", "a"), 1);  // the evaluations above did not change it
}

TEST(Variables, MayStandInAnyOrder) {
  const Variables v(Definitions{{"a", "b + 1"}, {"b", "c * 2"}, {"c", 5.0}, {"d", "a + c"}});
  EXPECT_EQ(v.values(), (std::map<std::string, double>{{"a", 11}, {"b", 10}, {"c", 5}, {"d", 16}}));
}

// What is nested, or defined by what is defined by others, has the depth of the limits at most.
TEST(Variables, DepthIsNotADanger) {
  const Variables none;
  EXPECT_EQ(none.evaluate(std::string(499, '(') + "1" + std::string(499, ')'), "x"), 1);
  for (const std::string& text :
       {std::string(1000, '('), std::string(1000, '-'), std::string(100'000, '(')}) {
    EXPECT_THROW(none.evaluate(text, "x"), InvalidArgument);
  }
  std::map<std::string, Variables::Definition> chain;
  for (int i = 0; i < 999; ++i) {
    chain["v" + std::to_string(i)] = "v" + std::to_string(i + 1) + " + 1";
  }
  chain["v999"] = 1.0;
  EXPECT_EQ(Variables(chain).values().at("v0"), 1000);
}

TEST(Variables, CirclesAreNamed) {
  EXPECT_CONTAINS(refusal<InvalidArgument>([] {
                    Variables(Definitions{{"a", "b"}, {"b", "c + 1"}, {"c", "a"}});
                  }),
                  "a -> b -> c -> a");
  EXPECT_CONTAINS(refusal<InvalidArgument>([] { Variables(Definitions{{"a", "a"}}); }), "a -> a");
}

TEST(Variables, RefuseNamesAndValuesThatCannotBe) {
  EXPECT_THROW(Variables(Definitions{{"a b", 1.0}}), InvalidArgument);
  EXPECT_THROW(Variables(Definitions{{"", 1.0}}), InvalidArgument);
  EXPECT_THROW(Variables(Definitions{{"1a", 1.0}}), InvalidArgument);
  EXPECT_THROW(Variables(Definitions{{"sqrt", 1.0}}), InvalidArgument);
  EXPECT_THROW(Variables(Definitions{{"a", std::nan("")}}), InvalidArgument);
  EXPECT_CONTAINS(refusal<InvalidArgument>([] {
                    Variables(Definitions{{"width", 1.0}, {"b", "widht"}});
                  }),
                  "did you mean `width`?");
}

}  // namespace
}  // namespace lockstep
