// A file system in memory that loses, at a power cut, what was not synced.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::testing {

// What every call gives once the power is gone.
class PowerCut : public FileError {
 public:
  PowerCut() : FileError("[test] power cut") {}
};

// Bytes are safe after sync(), names (new, renamed, removed; of files and folders) after
// sync_folder() of their folder. The rest may be there or not: each name changes back or stays on
// its own, and the bytes of a file may be the old ones, the new ones, the first of the new ones, or
// the right number of zeros. POSIX allows all of that. One thread at a time.
class PowerCutFiles : public FileSystem {
 public:
  // What a cut leaves of what was not synced.
  enum class Rest { nothing, everything, some };

  // Cuts the power at the call with this number (0: the first) of those that change something,
  // before it does; -1: never.
  void cut_at(int call) { cut_at_ = call; }
  // Calls that changed something, since the beginning or power_on().
  int calls() const { return calls_; }
  bool dead() const { return dead_; }
  // The machine starts again, with `rest` of what was not safe. `seed` chooses where there is a
  // choice.
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
  // A change of names that is not safe yet: `name` stands for `content` (null: for nothing), and
  // `gone`, where given, for nothing.
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
