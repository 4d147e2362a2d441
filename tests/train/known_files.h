// Images of which an earlier reading may be known (data/batches/reading_record.h), for trainings.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/train/trainer.h"
#include "tests/data/kept_readings.h"

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
