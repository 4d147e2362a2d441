#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "lockstep/report/charts.h"

namespace lockstep {
namespace {

ConfusionMatrix some(int64_t classes, int64_t right, int64_t wrong) {
  std::vector<std::string> names;
  for (int64_t c = 0; c < classes; ++c) names.push_back("kind number " + std::to_string(c));
  ConfusionMatrix m(names);
  for (int64_t c = 0; c < classes; ++c) {
    m.add(c, c, right);
    m.add(c, (c + 1) % classes, wrong);
  }
  return m;
}

// Counts by true class, then by predicted class.
ConfusionMatrix of_two(const std::vector<std::string>& names, const std::vector<int64_t>& counts) {
  ConfusionMatrix m(names);
  for (int64_t i = 0; i < 4; ++i) m.add(i / 2, i % 2, counts[static_cast<size_t>(i)]);
  return m;
}

size_t widest(const std::string& text) {
  std::istringstream lines(text);
  size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, line.size());
  return most;
}

TEST(ConfusionTable, OfTwoClasses) {
  EXPECT_EQ(confusion_table(of_two({"cat", "dog"}, {90, 10, 0, 12345}), 80),
            "rows: true classes, columns: predicted; recall and precision in percent\n"
            "            cat   dog  recall\n"
            "cat          90    10    90.0\n"
            "dog           . 12345   100.0\n"
            "precision 100.0  99.9\n");
  EXPECT_EQ(confusion_table(of_two({"cat", "dog"}, {0, 0, 0, 5}), 25),
            "rows: true classes, columns: predicted; recall and precision in percent\n"
            "          cat dog  recall\n"
            "cat         .   .       -\n"
            "dog         .   5   100.0\n"
            "precision   - 100\n");
}

TEST(ConfusionTable, FitsOrBecomesAList) {
  for (const int width : {40, 80, 100, 200}) {
    for (const int64_t classes : {2, 10, 15, 20, 100}) {
      const std::string text = confusion_table(some(classes, 950, 50), width);
      const bool list = text.starts_with("class ");
      const int64_t least = 17 + static_cast<int64_t>(std::to_string(classes).size()) + 4 * classes;
      EXPECT_EQ(list, least > width) << text;
      if (!list) {
        EXPECT_LE(widest(text), static_cast<size_t>(std::max(width, 72))) << text;
      }
    }
  }
  const std::string twenty = confusion_table(some(20, 950, 50), 100);
  EXPECT_NE(twenty.find("\n 4 kind num~   .   .   . 950  50   ."), std::string::npos) << twenty;
  const std::string list = confusion_table(some(30, 950, 50), 80);
  EXPECT_NE(list.find("kind number 3           1000      95.0         95.0  kind number 4 (50)"),
            std::string::npos)
      << list;
}

TEST(ConfusionTable, ListsOfLongNamesFitToo) {
  ConfusionMatrix m = some(30, 950, 50);
  for (std::string& name : m.classes) name = "a class of a long name " + name;
  EXPECT_LE(widest(confusion_table(m, 80)), 80u) << confusion_table(m, 80);
}

TEST(ConfusionTable, OfManyClassesShowsTheWorst) {
  ConfusionMatrix m = some(6000, 10, 0);
  m.add(4000, 17, 3);
  m.add(4000, 18, 1);
  m.add(5999, 0, 2);
  const std::string text = confusion_table(m, 80);
  EXPECT_TRUE(text.starts_with("the 100 of 6000 classes with the most errors:\nclass")) << text;
  EXPECT_NE(text.find("mainly predicted as\n"
                      "kind number 4000            14      71.4        100.0  kind number 17 (3)\n"
                      "kind number 17              10     100.0         76.9\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("the most frequent errors:\n"
                      "kind number 4000 as kind number 17    3\n"
                      "kind number 5999 as kind number 0     2\n"
                      "kind number 4000 as kind number 18    1\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 + 100 + 1 + 3);
  EXPECT_LE(widest(text), 80u);
}

TEST(ConfusionTable, NamesAreCutAsCharacters) {
  const auto m = of_two({"Größenänderungsübersicht", "a\x1b[31mb"}, {1, 0, 0, 1});
  const std::string text = confusion_table(m, 80);
  EXPECT_NE(text.find("1 Größenänderungsüber~     1     ."), std::string::npos) << text;
  EXPECT_NE(text.find("2 a?[31mb "), std::string::npos) << text;
  EXPECT_NE(confusion_table(m, 31).find("1 Größenän~     1"), std::string::npos)
      << confusion_table(m, 31);
}

}  // namespace
}  // namespace lockstep
