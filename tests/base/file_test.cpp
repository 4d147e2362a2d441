#include "lockstep/base/os/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/base/breaking_files.h"

namespace lockstep {
namespace {

using testing::BreakingFiles;

// A separate folder for each test, removed afterwards.
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
  make_folders(files_, path("sub/deep/er"));  // existing folders are not an error
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
            "[file] cannot read " + folder_ + ": it is a folder, not a file");
  write_atomically(files_, path("file"), std::string_view("x"));
  EXPECT_EQ(error_of([&] { make_folders(files_, path("file/sub")); }),
            "[file] cannot make folder " + path("file/sub") + ": Not a directory");
  EXPECT_NE(error_of([&] { files_.remove(folder_); }), "no error");
}

TEST_F(Files, WhatIsNotAFileIsRefusedBeforeItIsRead) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int listening = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{AF_UNIX, {}};
  path("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  std::filesystem::create_symlink("pipe", path("link"));
  for (const auto& [name, kind] :
       std::vector<std::pair<std::string, std::string>>{{path("pipe"), "a pipe"},
                                                        {path("link"), "a pipe"},
                                                        {path("socket"), "a socket"},
                                                        {"/dev/zero", "a device"},
                                                        {"/dev/null", "a device"}}) {
    EXPECT_EQ(error_of([&, &file = name] { files_.read(file); }),
              "[file] cannot read " + name + ": it is " + kind + ", not a file");
  }
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);  // as a shell passes <(command)
  EXPECT_NE(error_of([&] { files_.read("/dev/fd/" + std::to_string(ends[0])); }).find("a pipe"),
            std::string::npos);
  EXPECT_NE(error_of([&] { files_.open(path("pipe"), false); }), "no error") << "none reads it";
  for (const int fd : {listening, ends[0], ends[1]}) close(fd);
}

TEST_F(Files, AFileThatClaimsMoreThanTheMemoryIsRefused) {
  write_atomically(files_, path("sparse"), std::string_view("x"));
  std::filesystem::resize_file(path("sparse"), uint64_t{1} << 42);
  EXPECT_NE(error_of([&] { files_.read(path("sparse")); }).find("4398046511104 bytes"),
            std::string::npos);
}

TEST_F(Files, AFileThatEndsInALargeHoleIsRefused) {
  write_atomically(files_, path("sparse"), std::string_view("{}"));
  const uint64_t size = (uint64_t{1} << 30) + (uint64_t{1} << 20);
  std::filesystem::resize_file(path("sparse"), size);
  EXPECT_NE(error_of([&] {
              files_.read(path("sparse"));
            }).find("claims " + std::to_string(size) + " bytes"),
            std::string::npos);
  std::filesystem::resize_file(path("sparse"), 1 << 20);
  EXPECT_EQ(files_.read(path("sparse")).size(), size_t{1} << 20);
}

TEST_F(Files, AFileBeyondTheLimitOfSizesIsAnError) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{10000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string hint;
  try {
    write_atomically(files_, path("large"), std::string(20000, 'x'));
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), "[file] cannot write " + path("large") + ".tmp: File too large");
    hint = error.hint();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_NE(hint.find("ulimit -f"), std::string::npos);
  EXPECT_TRUE(files_.list(folder_).empty()) << "no half of a file";
}

// In a program whose standard output is closed, what it prints must not go into a file.
TEST_F(Files, NoFileTakesThePlaceOfStandardOutput) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(standard);
    const auto file = files_.open(path("receipt"), false);
    for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
      if (write(standard, "printed\n", 8) != -1) _exit(2);
    }
    file->append(as_bytes("recorded\n"));
    file->sync();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(files_, path("receipt")), "recorded\n");
}

// A folder that is moved or replaced while files in it are written.
class FolderInUse : public Files {
 protected:
  void SetUp() override {
    Files::SetUp();
    run_ = path("run");
    make_folders(files_, run_);
    inside_ = files_anchored_in(run_ + "/");
    stream_ = inside_->open(run_ + "/log", true);
    stream_->append(as_bytes("before\n"));
    stream_->sync();
    make_folders(*inside_, run_ + "/deep/er");
  }
  // All writes fail, and nothing was created in `other`, if that is a folder.
  void expect_refused(const std::string& how, const std::string& other) {
    const std::string text = "[file] the folder " + run_ + " was " + how;
    const auto refused = [&](const std::function<void()>& call) {
      EXPECT_EQ(error_of(call).substr(0, text.size()), text);
    };
    const auto before = other.empty() ? std::vector<std::string>() : files_.list(other);
    refused([&] { stream_->sync(); });
    refused([&] { stream_->append(as_bytes("after\n")); });
    refused([&] { write_atomically(*inside_, run_ + "/model", std::string_view("x")); });
    refused([&] { make_folders(*inside_, run_ + "/new/er"); });
    refused([&] { inside_->sync_folder(run_); });
    refused([&] { inside_->rename(run_ + "/log", run_ + "/other"); });
    if (!other.empty()) {
      EXPECT_EQ(files_.list(other), before);
    }
  }

  std::string run_;
  std::unique_ptr<FileSystem> inside_;
  std::unique_ptr<WritableFile> stream_;
};

TEST_F(FolderInUse, WorksAsLongAsNothingHappens) {
  write_atomically(*inside_, run_ + "/deep/er/x", std::string_view("x"));
  EXPECT_EQ(read_text(files_, run_ + "/deep/er/x"), "x");
  EXPECT_EQ(read_text(*inside_, run_ + "/deep//er/x"), "x");
  EXPECT_EQ(inside_->list(run_), (std::vector<std::string>{"deep", "log"}));
  EXPECT_TRUE(inside_->is_folder(run_) && inside_->is_folder(run_ + "/deep/er"));
  EXPECT_FALSE(inside_->exists(run_ + "x")) << "beside it, not in it";
  write_atomically(*inside_, path("beside"), std::string_view("y"));
  EXPECT_EQ(read_text(files_, path("beside")), "y");
}

TEST_F(FolderInUse, TellsOfARename) {
  std::filesystem::rename(run_, path("moved"));
  expect_refused("removed or renamed", path("moved"));
  EXPECT_FALSE(files_.exists(run_)) << "it is not made anew";
  std::filesystem::rename(path("moved"), run_);
  stream_->append(as_bytes("after\n"));  // the folder is back
  EXPECT_EQ(read_text(files_, run_ + "/log"), "before\nafter\n");
}

TEST_F(FolderInUse, TellsOfARemoval) {
  std::filesystem::remove_all(run_);
  expect_refused("removed or renamed", "");
  EXPECT_FALSE(files_.exists(run_));
}

TEST_F(FolderInUse, TellsOfAnotherFolderOfTheSameName) {
  std::filesystem::rename(run_, path("moved"));
  make_folders(files_, run_ + "/deep/er");
  expect_refused("replaced", run_);
}

TEST_F(FolderInUse, TellsOfALinkOfTheSameName) {
  std::filesystem::rename(run_, path("moved"));
  make_folders(files_, path("elsewhere/deep"));
  std::filesystem::create_directory_symlink("elsewhere", run_);
  expect_refused("replaced", path("elsewhere"));
  std::filesystem::remove(run_);
  std::filesystem::create_directory_symlink("moved", run_);
  stream_->append(as_bytes("after\n"));  // the same folder by another path
  EXPECT_EQ(read_text(files_, run_ + "/log"), "before\nafter\n");
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
    // Only the last step, the sync of the folder, comes after the rename.
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
