#include "lockstep/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/base/error.h"
#include "tests/base/breaking_files.h"

namespace lockstep {
namespace {

using testing::BreakingFiles;

// A folder of its own for each test, removed afterwards.
class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lockstep_file_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(std::string_view name) const { return join_path(folder_, name); }

  std::string folder_;
  FileSystem& files_ = local_files();
};

TEST_F(Files, ReadsBackWhatWasWritten) {
  std::string text(100000, 'x');
  text[5] = '\0';
  write_atomically(files_, path("a"), text);
  EXPECT_EQ(read_text(files_, path("a")), text);
  write_atomically(files_, path("a"), std::string_view());
  EXPECT_EQ(read_text(files_, path("a")), "");
  EXPECT_EQ(files_.list(folder_), std::vector<std::string>{"a"});
}

TEST_F(Files, OpenTruncatesUnlessAppending) {
  const auto write = [&](bool append, std::string_view text) {
    const auto file = files_.open(path("log"), append);
    file->append(as_bytes(text));
    file->sync();
  };
  write(true, "one ");
  write(true, "two ");
  EXPECT_EQ(read_text(files_, path("log")), "one two ");
  write(false, "3");
  EXPECT_EQ(read_text(files_, path("log")), "3");
}

TEST_F(Files, ReadsFilesThatDoNotKnowTheirSize) {
  EXPECT_FALSE(read_text(files_, "/proc/self/status").empty());
}

TEST_F(Files, ListsNamesBytewiseAndTellsFoldersFromFiles) {
  for (const char* name : {"b", "a", "B", "\xc3\xa9", ".hidden", "10", "9"}) {
    write_atomically(files_, path(name), std::string_view("x"));
  }
  make_folders(files_, path("sub/deep/er"));
  make_folders(files_, path("sub/deep/er"));  // being there is fine
  const std::vector<std::string> expected = {".hidden", "10", "9",   "B",
                                             "a",       "b",  "sub", "\xc3\xa9"};
  EXPECT_EQ(files_.list(folder_), expected);
  EXPECT_TRUE(files_.is_folder(path("sub/deep")));
  EXPECT_FALSE(files_.is_folder(path("a")));
  EXPECT_FALSE(files_.is_folder(path("none")));
  EXPECT_TRUE(files_.exists(path("a")));
  EXPECT_FALSE(files_.exists(path("none")));
  EXPECT_FALSE(files_.exists(path("a/below_a_file")));
  files_.remove(path("a"));
  files_.remove(path("a"));
  EXPECT_FALSE(files_.exists(path("a")));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(Files, ErrorsNameThePathAndTheReason) {
  const std::string none = path("none");
  const std::string reason = ": No such file or directory";
  EXPECT_EQ(error_of([&] { files_.read(none); }), "[file] cannot read " + none + reason);
  EXPECT_EQ(error_of([&] { files_.list(none); }), "[file] cannot list folder " + none + reason);
  EXPECT_EQ(error_of([&] { files_.sync_folder(none); }),
            "[file] cannot sync folder " + none + reason);
  EXPECT_EQ(error_of([&] { files_.open(none + "/x", false); }),
            "[file] cannot open " + none + "/x" + reason);
  EXPECT_EQ(error_of([&] { files_.rename(none, path("x")); }),
            "[file] cannot rename " + none + " to " + path("x") + reason);
  EXPECT_EQ(error_of([&] { files_.read(folder_); }),
            "[file] cannot read " + folder_ + ": Is a directory");
  write_atomically(files_, path("file"), std::string_view("x"));
  EXPECT_EQ(error_of([&] { make_folders(files_, path("file/sub")); }),
            "[file] cannot make folder " + path("file/sub") + ": Not a directory");
  EXPECT_NE(error_of([&] { files_.remove(folder_); }), "no error");
}

TEST_F(Files, AFullDiskIsNamedWithAHint) {
  if (!files_.exists("/dev/full")) GTEST_SKIP() << "this system has no /dev/full";
  const auto file = files_.open("/dev/full", true);
  try {
    file->append(as_bytes("x"));
    FAIL() << "nothing was thrown";
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "[file] cannot write /dev/full: No space left on device");
    EXPECT_NE(error.hint(), "");
  }
}

TEST_F(Files, AnAtomicWriteBrokenAtAnyCallLeavesOldOrNewContent) {
  const std::string old_text = "the old content";
  const std::string new_text(5000, 'n');
  int succeeded = 0;
  for (int fail_at = 0; succeeded == 0; ++fail_at) {
    ASSERT_LT(fail_at, 20);
    write_atomically(files_, path("state"), old_text);
    BreakingFiles breaking(fail_at);
    bool thrown = false;
    try {
      write_atomically(breaking, path("state"), new_text);
      ++succeeded;
    } catch (const FileError&) {
      thrown = true;
    }
    const std::string found = read_text(files_, path("state"));
    EXPECT_TRUE(found == old_text || found == new_text) << "call " << fail_at;
    // Only the last step, the folder's sync, comes after the exchange.
    EXPECT_EQ(found == new_text, !thrown || fail_at == 4) << "call " << fail_at;
    EXPECT_EQ(files_.list(folder_), std::vector<std::string>{"state"}) << "call " << fail_at;
    if (!thrown) {
      EXPECT_EQ(breaking.calls(), 5) << "open, append, sync, rename, sync_folder";
    }
  }
}

TEST_F(Files, TheFirstErrorIsToldWhenCleaningUpFailsToo) {
  class NothingWorks : public BreakingFiles {
   public:
    NothingWorks() : BreakingFiles(-1) {}
    void rename(const std::string&, const std::string&) override {
      throw FileError("[test] first");
    }
    void remove(const std::string&) override { throw FileError("[test] second"); }
  } broken;
  EXPECT_EQ(error_of([&] { write_atomically(broken, path("x"), std::string_view("y")); }),
            "[test] first");
}

TEST(Path, PartsAreJoinedAndTakenApart) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(folder_of("a/b"), "a");
  EXPECT_EQ(folder_of("a/b/"), "a");
  EXPECT_EQ(folder_of("/b"), "/");
  EXPECT_EQ(folder_of("/"), "/");
  EXPECT_EQ(folder_of("b"), ".");
  EXPECT_EQ(folder_of("a//b"), "a");
}

}  // namespace
}  // namespace lockstep
