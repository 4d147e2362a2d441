// A file system whose calls fail.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"

namespace lockstep::testing {

// Fails at the call with the given number (from 0). A failing append has written half of its bytes.
class BreakingFiles : public FileSystem {
 public:
  explicit BreakingFiles(int fail_at) : fail_at_(fail_at) {}
  int calls() const { return calls_; }

  std::vector<std::byte> read(const std::string& path) override {
    step("read");
    return real_.read(path);
  }
  void read_in_chunks(const std::string& path, const ChunkReader& chunk) override {
    step("read");
    real_.read_in_chunks(path, chunk);
  }
  std::unique_ptr<WritableFile> open(const std::string& path, bool append) override {
    step("open");
    return std::make_unique<File>(*this, real_.open(path, append));
  }
  void rename(const std::string& from, const std::string& to) override {
    step("rename");
    real_.rename(from, to);
  }
  void sync_folder(const std::string& folder) override {
    step("sync_folder");
    real_.sync_folder(folder);
  }
  void make_folder(const std::string& folder) override {
    step("make_folder");
    real_.make_folder(folder);
  }
  bool exists(const std::string& path) override { return real_.exists(path); }
  bool is_folder(const std::string& path) override { return real_.is_folder(path); }
  std::vector<std::string> list(const std::string& path) override {
    step("list");
    return real_.list(path);
  }
  void remove(const std::string& path) override {
    step("remove");
    real_.remove(path);
  }

 private:
  class File : public WritableFile {
   public:
    File(BreakingFiles& files, std::unique_ptr<WritableFile> real)
        : files_(files), real_(std::move(real)) {}
    void append(std::span<const std::byte> bytes) override {
      if (files_.calls_ == files_.fail_at_) real_->append(bytes.first(bytes.size() / 2));
      files_.step("append");
      real_->append(bytes);
    }
    void sync() override {
      files_.step("sync");
      real_->sync();
    }

   private:
    BreakingFiles& files_;
    std::unique_ptr<WritableFile> real_;
  };

  void step(const char* what) {
    if (calls_++ == fail_at_) throw FileError(std::string("[test] broken ") + what);
  }

  FileSystem& real_ = local_files();
  int fail_at_;
  int calls_ = 0;
};

}  // namespace lockstep::testing
