#include "lockstep/runs/folders/growing_lines.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/data/support.h"

namespace lockstep {
namespace {

class GrowingLinesTest : public ::testing::Test {
 protected:
  void write(const std::string& text, bool anew = false) {
    std::ofstream(path(), std::ios::binary | (anew ? std::ios::trunc : std::ios::app)) << text;
  }
  std::string path() const { return folder_ + "/log.jsonl"; }
  std::vector<std::string> next(int64_t most = INT64_MAX) {
    std::vector<std::string> found;
    lines_.follow(
        path(), [&](std::string_view line) { found.emplace_back(line); }, most);
    return found;
  }
  using Lines = std::vector<std::string>;

  GrowingLines lines_;
  const testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path;
};

TEST_F(GrowingLinesTest, WholeLinesAlone) {
  EXPECT_EQ(next(), Lines{});
  write("a\n\nb");
  EXPECT_EQ(next(), (Lines{"a", ""}));
  EXPECT_EQ(lines_.position(), 3);
  EXPECT_EQ(next(), Lines{});
  write("c\nd\n");
  EXPECT_EQ(next(), (Lines{"bc", "d"}));
  write("1234\n5678\n");
  EXPECT_EQ(next(3), Lines{});
  EXPECT_EQ(next(3), Lines{"1234"});
  EXPECT_EQ(next(), Lines{"5678"});
  write("x\n", true);
  EXPECT_EQ(next(), Lines{"x"});
  EXPECT_TRUE(lines_.restarted());
  EXPECT_EQ(next(), Lines{});
  EXPECT_FALSE(lines_.restarted());
}

TEST_F(GrowingLinesTest, LongLinesOverManyChunks) {
  const std::string longest(GrowingLines::longest - 10, 'x'), some((size_t{1} << 20) + 17, 'y');
  write(longest + "\n" + some + "\nz\n");
  const Lines found = next();
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], longest);
  EXPECT_EQ(found[1], some);
  EXPECT_FALSE(lines_.overlong());
}

// A file may be sparse and claim any size.
TEST_F(GrowingLinesTest, ALineWithoutEndIsNotRead) {
  write("a\n");
  std::filesystem::resize_file(path(), uintmax_t{20} << 30);
  EXPECT_EQ(next(), Lines{"a"});
  EXPECT_TRUE(lines_.overlong());
  EXPECT_LE(lines_.bytes_read(), int64_t{18} << 20);
  EXPECT_EQ(next(), Lines{});
  EXPECT_LE(lines_.bytes_read(), int64_t{18} << 20);
  write("b\n", true);
  EXPECT_EQ(next(), Lines{"b"});
  EXPECT_FALSE(lines_.overlong());
}

// Another process may write more, before the next look, than there was.
TEST_F(GrowingLinesTest, AFileThatIsWrittenAnewMayBeLonger) {
  write("a\nb\nc");
  EXPECT_EQ(next(), (Lines{"a", "b"}));
  write("x\ny\nz\nlonger\n", true);
  EXPECT_EQ(next(), (Lines{"x", "y", "z", "longer"}));
  EXPECT_TRUE(lines_.restarted());
  EXPECT_EQ(next(), Lines{});
  EXPECT_FALSE(lines_.restarted());
  // Another file with the same beginning.
  std::ofstream(folder_ + "/new") << "x\ny\nz\nlonger\nend\n";
  std::filesystem::rename(folder_ + "/new", path());
  EXPECT_EQ(next().size(), 5u);
  EXPECT_TRUE(lines_.restarted());
  write("more\n");
  EXPECT_EQ(next(), Lines{"more"});
  EXPECT_FALSE(lines_.restarted());
  // Another one of which no line was whole yet.
  write("one", true);
  EXPECT_EQ(next(), Lines{});
  std::ofstream(folder_ + "/new") << "three and\n";
  std::filesystem::rename(folder_ + "/new", path());
  EXPECT_EQ(next(), Lines{"three and"});
}

TEST_F(GrowingLinesTest, LongFilesAreComparedByTheirEnd) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  write(text);
  EXPECT_EQ(next().size(), 1000u);
  EXPECT_EQ(next(100).size(), 0u);
  EXPECT_FALSE(lines_.restarted());
  text[text.size() - 20] = 'X';
  write(text + "more\n", true);
  EXPECT_EQ(next().size(), 1001u);
  EXPECT_TRUE(lines_.restarted());
}

// As a page does that connects again: the position and the mark are all that it knows.
TEST_F(GrowingLinesTest, APositionWithAMark) {
  EXPECT_EQ(lines_.mark(), "");
  write("a\nb\nc");
  next();
  const std::string mark = lines_.mark();
  EXPECT_EQ(mark.size(), 16u);
  GrowingLines known = lines_;
  known.skip_to(4, mark);
  EXPECT_EQ(known.position(), 4);
  std::swap(lines_, known);
  write("d\n");
  EXPECT_EQ(next(), Lines{"cd"});
  EXPECT_FALSE(lines_.restarted());
  lines_.skip_to(4, mark);
  write("1\n2\n345\n", true);
  EXPECT_EQ(next(), (Lines{"1", "2", "345"}));
  EXPECT_TRUE(lines_.restarted());
  lines_.skip_to(4);  // without a mark there is nothing to compare
  EXPECT_EQ(next(), Lines{"345"});
  lines_.skip_to(0, mark);
  EXPECT_EQ(next().size(), 3u);
  EXPECT_FALSE(lines_.restarted());
}

TEST_F(GrowingLinesTest, AMissingFileIsNotUnreadable) {
  EXPECT_EQ(next(), Lines{});
  EXPECT_FALSE(lines_.unreadable());
  write("a\n");
  EXPECT_EQ(next(), Lines{"a"});
  EXPECT_FALSE(lines_.unreadable());
}

TEST_F(GrowingLinesTest, OtherThanFiles) {
  std::filesystem::create_directory(path());
  EXPECT_EQ(next(), Lines{});
  EXPECT_TRUE(lines_.unreadable());
  std::filesystem::remove(path());
  std::filesystem::create_symlink("log.jsonl", path());  // a loop
  EXPECT_EQ(next(), Lines{});
  EXPECT_TRUE(lines_.unreadable());
  std::filesystem::remove(path());
  EXPECT_EQ(next(), Lines{});
  EXPECT_FALSE(lines_.unreadable());
}

}  // namespace
}  // namespace lockstep
