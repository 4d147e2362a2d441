// Base class of datastores that change another datastore. Forwards all calls, so a derived class
// overrides only the functions that it changes.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

class DatastoreWrapper : public Datastore {
 public:
  // Throws InvalidArgument if `store` is null.
  explicit DatastoreWrapper(DatastorePtr store) : store_(std::move(store)) {
    if (store_ == nullptr) throw InvalidArgument("[datastore] the datastore is null");
  }

  int64_t size() const override { return store_->size(); }
  ExampleSpec spec() const override { return store_->spec(); }
  Example read(int64_t index) const override { return store_->read(index); }
  int64_t label(int64_t index) const override { return store_->label(index); }
  const std::vector<std::string>& classes() const override { return store_->classes(); }
  std::string name(int64_t index) const override { return store_->name(index); }
  std::string describe() const override { return store_->describe(); }
  Digest content_digest(int64_t index) const override { return store_->content_digest(index); }
  std::optional<int64_t> steps(int64_t index, size_t value) const override {
    return store_->steps(index, value);
  }
  std::vector<std::string> notices() const override { return store_->notices(); }
  void expect(const std::vector<int64_t>& indices) const override { store_->expect(indices); }

 protected:
  const Datastore& wrapped() const { return *store_; }
  // file_state() for a change of the wrapped datastore that `change` and numbers describe.
  std::optional<Digest> changed_state(std::string_view change,
                                      std::initializer_list<int64_t> numbers) const {
    const std::optional<Digest> inner = store_->file_state();
    if (!inner) return inner;
    Digester digester;
    digester.add(change);
    digester.add(*inner);
    for (const int64_t number : numbers) digester.add(static_cast<uint64_t>(number));
    return digester.finish();
  }
  // The first input of an example of the wrapped datastore. Throws DataError, naming the example,
  // if it is not an image.
  Image& image_in(Example& example, int64_t index) const {
    if (!example.inputs.empty()) {
      if (auto* const image = std::get_if<Image>(&example.inputs[0])) return *image;
    }
    throw DataError("[datastore] " + name(index) + " (" + store_->describe() +
                    ") is not the image that its datastore announces");
  }
  // The target of an example if it is a label image, else null.
  static Image* labels_in(Example& example) { return std::get_if<Image>(&example.target); }

 private:
  DatastorePtr store_;
};

}  // namespace lockstep
