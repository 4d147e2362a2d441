// The list of a training's observations (names, classes and contents), a file in the run's folder.
// If a resumed training finds other data, the list shows which observations changed.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/data/batches/example_cache.h"

namespace lockstep {

// Not thread-safe.
class ObservationList {
 public:
  // Adds all observations of a filled cache.
  void add(const ExampleCache& cache);

  // Writes the list atomically. Throws FileError.
  void write(FileSystem& files, const std::string& path) const;
  // Empty if the file is missing or damaged.
  static ObservationList read(FileSystem& files, const std::string& path);

  bool empty() const { return all_.empty(); }
  // "2 changed (such as 7/001.png), 1 added (7/new.png) and 3 removed (such as 8/004.png)"; "" if
  // both lists are equal.
  std::string changes_to(const ObservationList& now) const;

 private:
  struct Entry {
    std::string name, label, content;
    auto operator<=>(const Entry&) const = default;
  };
  std::vector<Entry> all_;
};

}  // namespace lockstep
