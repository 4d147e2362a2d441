#include "lockstep/data/datastores/datastore.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/parts.h"
#include "lockstep/data/images/augmentation.h"

namespace lockstep {
namespace {

class Subset final : public Datastore {
 public:
  Subset(DatastorePtr store, std::vector<int64_t> indices)
      : store_(std::move(store)), indices_(std::move(indices)) {
    if (store_ == nullptr) throw InvalidArgument("[subset] the datastore is null");
    for (int64_t i : indices_) {
      if (i < 0 || i >= store_->size()) {
        throw InvalidArgument("[subset] no observation with index " + std::to_string(i) +
                              " among " + std::to_string(store_->size()) + " (" +
                              store_->describe() + ")");
      }
    }
  }

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  ExampleSpec spec() const override { return store_->spec(); }
  Example read(int64_t index) const override { return store_->read(at(index)); }
  int64_t label(int64_t index) const override { return store_->label(at(index)); }
  const std::vector<std::string>& classes() const override { return store_->classes(); }
  std::string name(int64_t index) const override { return store_->name(at(index)); }
  std::string describe() const override {
    return std::to_string(indices_.size()) + " of " + store_->describe();
  }
  Digest content_digest(int64_t index) const override { return store_->content_digest(at(index)); }
  const ImageFacts* facts(int64_t index) const override { return store_->facts(at(index)); }
  std::optional<int64_t> steps(int64_t index, size_t value) const override {
    return store_->steps(at(index), value);
  }
  std::vector<std::string> notices() const override { return store_->notices(); }
  std::optional<Digest> file_state() const override {
    const std::optional<Digest> inner = store_->file_state();
    if (!inner) return inner;
    Digester digester;
    digester.add("subset");
    digester.add(*inner);
    digester.bytes(indices_.data(), indices_.size() * sizeof(int64_t));
    return digester.finish();
  }
  void expect(const std::vector<int64_t>& indices) const override {
    std::vector<int64_t> below;
    below.reserve(indices.size());
    for (const int64_t index : indices) below.push_back(at(index));
    store_->expect(below);
  }

 private:
  int64_t at(int64_t index) const {
    if (index < 0 || index >= size()) {
      throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                            " among " + std::to_string(size()) + " (" + describe() + ")");
    }
    return indices_[static_cast<size_t>(index)];
  }

  DatastorePtr store_;
  std::vector<int64_t> indices_;
};

class Transformed final : public DatastoreWrapper {
 public:
  Transformed(DatastorePtr store, std::function<Image(Image)> function, std::string name)
      : DatastoreWrapper(std::move(store)), function_(std::move(function)), name_(std::move(name)) {
    if (!function_) throw InvalidArgument("[transform] the function is empty");
    check_single_images(wrapped(), "transform");
  }

  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Image& image = image_in(example, index);
    try {
      image = function_(std::move(image));
    } catch (const std::exception& error) {
      refuse(index, error.what());
    }
    const bool whole =
        image.height > 0 && image.width > 0 && image.height <= max_image_side &&
        image.width <= max_image_side && (image.channels == 1 || image.channels == 3) &&
        image.pixels.size() == static_cast<size_t>(image.height * image.width * image.channels);
    if (!whole) {
      refuse(index, "it returned " + std::to_string(image.height) + " x " +
                        std::to_string(image.width) + " x " + std::to_string(image.channels) +
                        " with " + std::to_string(image.pixels.size()) + " bytes of pixels");
    }
    example.content = digest_of_image(image);
    return example;
  }
  std::string describe() const override {
    return wrapped().describe() + ", transformed by " + name_;
  }
  Digest content_digest(int64_t index) const override { return read(index).content; }

 private:
  [[noreturn]] void refuse(int64_t index, const std::string& why) const {
    throw DataError("[transform] " + name_ + " did not return a valid image for " + name(index) +
                    " (" + wrapped().describe() + "): " + why);
  }

  std::function<Image(Image)> function_;
  std::string name_;
};

}  // namespace

Datastore::~Datastore() = default;

ExampleSpec Datastore::spec() const { return {}; }

Digest Datastore::content_digest(int64_t index) const { return read(index).content; }

std::optional<Digest> Datastore::file_state() const { return std::nullopt; }

const ImageFacts* Datastore::facts(int64_t) const { return nullptr; }

std::optional<int64_t> Datastore::steps(int64_t, size_t) const { return std::nullopt; }

std::string ValueSpec::to_string() const {
  if (kind == ValueKind::image) return pixel_labels() ? "label images" : "images";
  const std::string integers = type == DType::i32 ? "integers" : "";
  std::string text = sequence ? "sequences" : "arrays";
  if (shape.rank() == 0) return text + " of " + (integers.empty() ? "floats" : integers);
  text += (sequence ? " with steps of " : " of ") + shape.to_string();
  return integers.empty() ? text : text + " " + integers;
}

std::vector<std::string> Datastore::notices() const { return {}; }

void Datastore::expect(const std::vector<int64_t>&) const {}

namespace {

std::string kinds_of(const ExampleSpec& spec) {
  std::string text;
  for (const ValueSpec& input : spec.inputs) {
    text += (text.empty() ? "" : " and ") + input.to_string();
    const bool floats = input.kind == ValueKind::array && input.type == DType::f32;
    if (floats && input.shape.rank() > 0 && spec.inputs.size() == 1) text += " floats";
  }
  return text + (spec.target ? " with targets" : "");
}

template <class Value>
Value only_input(const Datastore& store, int64_t index, const char* kind) {
  Example example = store.read(index);
  if (example.inputs.size() == 1) {
    if (Value* const value = std::get_if<Value>(&example.inputs[0])) return std::move(*value);
  }
  throw Unsupported("[datastore] " + store.name(index) + " (" + store.describe() + ") is not " +
                    kind + ": the inputs are " + kinds_of(store.spec()));
}

}  // namespace

Image read_image(const Datastore& store, int64_t index) {
  return only_input<Image>(store, index, "an image");
}

Array read_array(const Datastore& store, int64_t index) {
  return only_input<Array>(store, index, "an array of floats");
}

void check_images(const Datastore& store, const std::string& what, const std::string& field) {
  const ExampleSpec spec = store.spec();
  const auto is_image = [](const ValueSpec& input) { return input.kind == ValueKind::image; };
  if (std::any_of(spec.inputs.begin(), spec.inputs.end(), is_image)) return;
  throw Unsupported("[" + what + "] " + (field.empty() ? "" : field + " ") +
                    "is for images, but the observations (" + store.describe() + ") are " +
                    kinds_of(spec));
}

void check_augmentation(const Datastore& store, const Augmentation& augmentation) {
  augmentation.check();
  const std::string image_change = augmentation.image_change();
  if (!image_change.empty()) check_images(store, "augmentation", image_change);
  const std::string change = augmentation.sequence_change();
  if (change.empty()) return;
  const ExampleSpec spec = store.spec();
  const auto fits = [](const ValueSpec& input) {
    return input.sequence && input.type == DType::f32;
  };
  if (std::any_of(spec.inputs.begin(), spec.inputs.end(), fits)) return;
  throw Unsupported("[augmentation] " + change +
                    " is for sequences of numbers, but the observations (" + store.describe() +
                    ") are " + kinds_of(spec));
}

void check_single_images(const Datastore& store, const std::string& what, bool labels) {
  check_images(store, what);
  const ExampleSpec spec = store.spec();
  const bool fits = !spec.target || (labels && spec.target->pixel_labels());
  if (spec.inputs.size() == 1 && fits && !spec.inputs[0].pixel_labels()) return;
  throw Unsupported("[" + what + "] is for images, but the observations (" + store.describe() +
                        ") are " + kinds_of(spec),
                    "change the images first, then combine them or set their targets");
}

std::vector<std::string> notices_of(const std::vector<DatastorePtr>& stores) {
  std::vector<std::string> all;
  for (const DatastorePtr& store : stores) {
    if (!store) continue;
    for (std::string& text : store->notices()) {
      if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
    }
  }
  return all;
}

DatastorePtr subset(DatastorePtr store, std::vector<int64_t> indices) {
  return std::make_shared<Subset>(std::move(store), std::move(indices));
}

DatastorePtr partition(DatastorePtr store, int64_t parts, int64_t index) {
  if (store == nullptr) throw InvalidArgument("[partition] the datastore is null");
  if (parts < 1 || index < 0 || index >= parts) {
    throw InvalidArgument("[partition] no part " + std::to_string(index) + " of " +
                          std::to_string(parts) + " parts (counted from 0)");
  }
  const int64_t least = store->size() / parts, longer = store->size() % parts;
  const int64_t begin = index * least + std::min(index, longer);
  std::vector<int64_t> indices(static_cast<size_t>(least + (index < longer ? 1 : 0)));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = begin + static_cast<int64_t>(i);
  return subset(std::move(store), std::move(indices));
}

DatastorePtr transform(DatastorePtr store, std::function<Image(Image)> function,
                       const std::string& name) {
  return std::make_shared<Transformed>(std::move(store), std::move(function), name);
}

std::vector<Image> read_all(const Datastore& store, int threads) {
  std::vector<Image> images(static_cast<size_t>(store.size()));
  ThreadPool pool(threads);
  pool.for_each(store.size(),
                [&](int64_t i, int) { images[static_cast<size_t>(i)] = read_image(store, i); });
  return images;
}

Digest digest_of_image(const Image& image) {
  Digester digester;
  digester.add(static_cast<uint64_t>(image.height));
  digester.add(static_cast<uint64_t>(image.width));
  digester.add(static_cast<uint64_t>(image.channels));
  digester.bytes(image.pixels.data(), image.pixels.size());
  return digester.finish();
}

namespace {

void add_array(Digester& digester, const Shape& shape, const void* values) {
  for (int64_t dim : shape.dims()) digester.add(static_cast<uint64_t>(dim));
  digester.bytes(values, static_cast<size_t>(shape.elements()) * 4);
}

}  // namespace

Digest digest_of_array(const Shape& shape, const float* values) {
  Digester digester;
  add_array(digester, shape, values);
  return digester.finish();
}

Digest digest_of_array(const Shape& shape, const int32_t* values) {
  Digester digester;
  digester.add("integers");
  add_array(digester, shape, values);
  return digester.finish();
}

std::vector<DatastorePtr> split_each_label(DatastorePtr store, const std::vector<double>& fractions,
                                           uint64_t seed) {
  if (store == nullptr) throw InvalidArgument("[split_each_label] the datastore is null");
  const Parts parts = parts_of_each_label(*store, fractions, seed);
  std::vector<DatastorePtr> result;
  for (size_t p = 0; p <= fractions.size(); ++p) {
    result.push_back(subset(store, indices_of_part(parts, static_cast<int64_t>(p))));
  }
  return result;
}

DatastorePtr match_by_name(const Datastore& inputs, DatastorePtr targets) {
  if (targets == nullptr) throw InvalidArgument("[match_by_name] the targets are null");
  std::map<std::string, int64_t> by_name;
  for (int64_t i = 0; i < targets->size(); ++i) by_name.emplace(targets->name(i), i);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < inputs.size(); ++i) {
    const auto found = by_name.find(inputs.name(i));
    if (found == by_name.end()) {
      throw InvalidArgument("[match_by_name] " + inputs.name(i) + " of " + inputs.describe() +
                                " has no target with its name in " + targets->describe(),
                            "inputs and targets are matched by their paths in the two folders");
    }
    indices.push_back(found->second);
  }
  return subset(std::move(targets), std::move(indices));
}

std::vector<int64_t> count_each_label(const Datastore& store) {
  std::vector<int64_t> counts(store.classes().size(), 0);
  for (int64_t i = 0; i < store.size(); ++i) ++counts[static_cast<size_t>(store.label(i))];
  return counts;
}

}  // namespace lockstep
