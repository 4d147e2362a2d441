// A datastore over another one: passes everything on, so that what derives from it overrides only
// what it changes.
#pragma once

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/datastore.h"

namespace lockstep {

class DatastoreWrapper : public ImageDatastore {
 public:
  // Throws InvalidArgument where there is none.
  explicit DatastoreWrapper(DatastorePtr store) : store_(std::move(store)) {
    if (store_ == nullptr) throw InvalidArgument("[datastore] there is no datastore");
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
