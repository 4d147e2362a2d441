#include "lockstep/base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Text, KnowsUtf8) {
  for (const char* good : {"", "plain", "K\xc3\xa4se", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\n\x1b",
                           "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad : {"\xff", "a\x80", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xe2\x82", "\xf0\x80\x80\x80", "\xc3\x28"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Text, ShowsWhatATerminalWouldTakeForOrders) {
  EXPECT_EQ(printable("K\xc3\xa4se \\n"), "K\xc3\xa4se \\n");
  EXPECT_EQ(printable("a\nb\tc\rd\x1b[31m\x7f"), "a\\nb\\tc\\rd\\x1b[31m\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m\xc2\xa0"),
            "\\xc2\\x9b1m\xc2\xa0");  // an 8-bit CSI
  EXPECT_EQ(printable_lines("two problems:\n  a\n  b\nc"), "two problems:\n  a\n  b\\nc");
}

TEST(Text, ListsSomeOfMany) {
  const std::vector<std::string> all{"a", "b", "c"};
  EXPECT_EQ(list_of_some(all, 3), "a, b, c");
  EXPECT_EQ(list_of_some(all, 2), "a, b and 1 more");
  EXPECT_EQ(list_of_some({}, 2), "");
  EXPECT_EQ(list_of_some_names({"a", "b\n", "c"}, 2), "`a`, `b\\n` and 1 more");
}

}  // namespace
}  // namespace lockstep
