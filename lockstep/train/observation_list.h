// Which observations a training had, so that one that finds others when it goes on can say which:
// names, classes and contents, in a file of the run's folder.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/data/image_cache.h"

namespace lockstep {

// One thread at a time.
class ObservationList {
 public:
  // All observations of a cache that has been filled.
  void add(const ImageCache& cache);

  // Written atomically. Throws FileError.
  void write(FileSystem& files, const std::string& path) const;
  // Empty where there is no such file, or a damaged one.
  static ObservationList read(FileSystem& files, const std::string& path);

  bool empty() const { return all_.empty(); }
  // "2 changed (such as 7/001.png), 1 added (7/new.png) and 3 removed (such as 8/004.png)"; ""
  // where both hold the same.
  std::string changes_to(const ObservationList& now) const;

 private:
  struct Entry {
    std::string name, label, content;
    auto operator<=>(const Entry&) const = default;
  };
  std::vector<Entry> all_;
};

}  // namespace lockstep
