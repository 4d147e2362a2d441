// An in-memory file system that loses unsynced data at a power cut.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"

namespace lockstep::testing {

// Every call throws this after the power cut.
class PowerCut : public FileError {
 public:
  PowerCut() : FileError("[test] power cut") {}
};

// Bytes are safe after sync(). Names (new, renamed, removed; of files and folders) are safe after
// sync_folder() of their folder. Other changes may be lost: each name changes back or stays
// independently, and the bytes of a file may be the old ones, the new ones, a prefix of the new
// ones, or the right number of zeros. POSIX allows all of this. One thread at a time.
class PowerCutFiles : public FileSystem {
 public:
  // The unsynced changes that a cut leaves.
  enum class Rest { nothing, everything, some };

  // Cuts the power before call number `call` (from 0) of those that change data; -1: never.
  void cut_at(int call) { cut_at_ = call; }
  // Calls that changed data, since the beginning or power_on().
  int calls() const { return calls_; }
  bool dead() const { return dead_; }
  // Restarts the machine with `rest` of the unsynced changes. `seed` makes the choices.
  void power_on(Rest rest, uint64_t seed);

  std::vector<std::byte> read(const std::string& path) override;
  std::unique_ptr<WritableFile> open(const std::string& path, bool append) override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_folder(const std::string& folder) override;
  void make_folder(const std::string& folder) override;
  bool exists(const std::string& path) override;
  bool is_folder(const std::string& path) override;
  std::vector<std::string> list(const std::string& folder) override;
  void remove(const std::string& path) override;

 private:
  struct Content {
    std::vector<std::byte> now, safe;
    bool folder = false;
  };
  using Names = std::map<std::string, std::shared_ptr<Content>>;
  // A change of names that is not safe yet: `name` refers to `content` (null: removed), and `gone`,
  // if given, is removed.
  struct Change {
    std::string name, gone;
    std::shared_ptr<Content> content;
  };
  class File;

  void step();
  static void apply(Names& names, const Change& change);
  void change(Change change);

  Names now_, safe_;
  std::vector<Change> pending_;
  int cut_at_ = -1, calls_ = 0;
  bool dead_ = false;
};

}  // namespace lockstep::testing
