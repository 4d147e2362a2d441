// Images of which an earlier reading may be known (data/batches/reading_record.h), for trainings.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"

namespace lockstep::testing {

// Images in files that seem unchanged, also if image 3 is `changed`.
class KnownFiles : public DatastoreWrapper {
 public:
  explicit KnownFiles(DatastorePtr inner, bool changed = false)
      : DatastoreWrapper(std::move(inner)), changed_(changed) {}
  std::optional<Digest> file_state() const override { return Digest{1, 2}; }
  std::vector<std::string> notices() const override {
    return reads > 0 ? std::vector<std::string>{"one is turned"} : std::vector<std::string>{};
  }
  Example read(int64_t index) const override {
    ++reads;
    Example example = DatastoreWrapper::read(index);
    if (changed_ && index == 3) {
      Image& image = image_in(example, index);
      image.pixels[0] ^= 1;
      example.content = digest_of(image.pixels.data(), image.pixels.size());
    }
    return example;
  }

  mutable std::atomic<int64_t> reads{0};

 private:
  bool changed_;
};

// While it lives, every reading is kept, in a folder of its own.
class KeptReadings {
 public:
  KeptReadings() {
    for (Variable& v : variables_) {
      if (const char* const value = getenv(v.name)) v.before = value;
    }
    setenv(variables_[0].name, folder_.path.c_str(), 1);
    setenv(variables_[1].name, "0", 1);
  }
  ~KeptReadings() {
    for (const Variable& v : variables_) {
      v.before ? setenv(v.name, v.before->c_str(), 1) : unsetenv(v.name);
    }
  }
  KeptReadings(const KeptReadings&) = delete;
  KeptReadings& operator=(const KeptReadings&) = delete;

  int64_t size() const {
    const auto folder = std::filesystem::path(folder_.path) / "lockstep" / "images";
    if (!std::filesystem::exists(folder)) return 0;
    return std::distance(std::filesystem::directory_iterator(folder), {});
  }

 private:
  struct Variable {
    const char* name;
    std::optional<std::string> before = {};
  };
  TemporaryFolder folder_;
  std::vector<Variable> variables_{{"XDG_CACHE_HOME"}, {"LOCKSTEP_KEPT_READING_SECONDS"}};
};

// How many images were read before the first iteration.
class ReadAtFirst : public TrainingObserver {
 public:
  explicit ReadAtFirst(const Datastore& files) : files_(dynamic_cast<const KnownFiles&>(files)) {}
  void preparing(int64_t, int64_t) override { reads = files_.reads; }

  int64_t reads = -1;

 private:
  const KnownFiles& files_;
};

}  // namespace lockstep::testing
