// Base class of datastores that change another datastore. Forwards all calls, so a derived class
// overrides only the functions that it changes.
#pragma once

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

class DatastoreWrapper : public ImageDatastore {
 public:
  // Throws InvalidArgument if `store` is null.
  explicit DatastoreWrapper(DatastorePtr store) : store_(std::move(store)) {
    if (store_ == nullptr) throw InvalidArgument("[datastore] the datastore is null");
  }

  int64_t size() const override { return store_->size(); }
  Image read(int64_t index) const override { return store_->read(index); }
  Image read(int64_t index, Digest& content) const override { return store_->read(index, content); }
  std::optional<Shape> array_shape() const override { return store_->array_shape(); }
  std::vector<float> read_array(int64_t index, Digest& content) const override {
    return store_->read_array(index, content);
  }
  int64_t label(int64_t index) const override { return store_->label(index); }
  const std::vector<std::string>& classes() const override { return store_->classes(); }
  std::string name(int64_t index) const override { return store_->name(index); }
  std::string describe() const override { return store_->describe(); }
  Digest content_digest(int64_t index) const override { return store_->content_digest(index); }

 protected:
  const ImageDatastore& wrapped() const { return *store_; }

 private:
  DatastorePtr store_;
};

}  // namespace lockstep
