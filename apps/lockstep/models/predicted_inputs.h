// The observations that `lockstep predict` reads: what cannot be read of them, and their sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep::command {

// Observations that cannot be read become zeros, so that the others are predicted all the same.
// Their outputs are not used. Errors of a store in the network end the work, as they may concern
// every object.
class Tolerant final : public DatastoreWrapper {
 public:
  // The shapes are those of the network's inputs, in order.
  Tolerant(DatastorePtr store, std::vector<Shape> shapes)
      : DatastoreWrapper(std::move(store)), shapes_(std::move(shapes)) {}

  lockstep::Example read(int64_t index) const override;
  const ImageFacts* facts(int64_t index) const override { return wrapped().facts(index); }

  bool failed(int64_t index) const {
    const MutexLock lock(mutex_);
    return failed_.contains(index);
  }
  // In the order of the listing.
  std::vector<UnreadableImage> skipped() const;
  // Throws the error of what could not be read, if anything.
  void refuse() const;

 private:
  struct Reason {
    std::string reason, hint;
  };
  void note(int64_t index, const Error& error) const {
    const MutexLock lock(mutex_);
    failed_.insert({index, {error.what(), error.hint()}});
  }

  const std::vector<Shape> shapes_;
  mutable Mutex mutex_;
  mutable std::map<int64_t, Reason> failed_ LOCKSTEP_GUARDED_BY(mutex_);
};

// Notes the sizes of the images that are read.
class Measured final : public DatastoreWrapper {
 public:
  using DatastoreWrapper::DatastoreWrapper;
  lockstep::Example read(int64_t index) const override;
  struct Sizes {
    int64_t height = 0, width = 0;
    DecodedScale scale;
  };
  Sizes sizes_of(int64_t index) const {
    const MutexLock lock(mutex_);
    return sizes_.at(index);
  }

 private:
  mutable Mutex mutex_;
  mutable std::map<int64_t, Sizes> sizes_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::command
