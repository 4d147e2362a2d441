#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw InvalidArgument("[array_datastore] " + what);
}

std::string name_of(int64_t index) { return "image " + std::to_string(index); }
std::string name_of_array(int64_t index) { return "observation " + std::to_string(index); }

void check_size(int64_t height, int64_t width, int64_t channels, const std::string& what) {
  if (height >= 1 && width >= 1 && height <= max_image_side && width <= max_image_side &&
      (channels == 1 || channels == 3)) {
    return;
  }
  refuse(what + " of " + std::to_string(height) + " x " + std::to_string(width) + " x " +
         std::to_string(channels) + " (rows x columns x channels): sides must be 1 to " +
         std::to_string(max_image_side) + ", channels 1 or 3");
}

// Base class of datastores in memory.
class InMemory : public Datastore {
 public:
  // `names` returns the name of an observation by index. `kind` describes all of them, for example
  // "images".
  InMemory(int64_t size, ImageLabels labels, std::string (*names)(int64_t), std::string kind)
      : size_(size), labels_(std::move(labels)), names_(names), kind_(std::move(kind)) {
    if (size < 0) refuse(std::to_string(size) + " " + kind_);
    std::vector<int64_t>& given = labels_.labels;
    std::vector<std::string>& classes = labels_.classes;
    if (given.empty()) {
      if (classes.empty()) classes.emplace_back();
      if (size > 0 && classes.size() > 1) {
        refuse(std::to_string(classes.size()) + " classes, but no labels");
      }
      given.assign(static_cast<size_t>(size), 0);
    }
    if (static_cast<int64_t>(given.size()) != size) {
      refuse(std::to_string(given.size()) + " labels for " + std::to_string(size) + " " + kind_);
    }
    if (classes.empty()) name_classes();
    if (std::set<std::string>(classes.begin(), classes.end()).size() != classes.size()) {
      refuse("two classes have the same name");
    }
    const auto count = static_cast<int64_t>(classes.size());
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i] >= 0 && given[i] < count) continue;
      refuse(names_(static_cast<int64_t>(i)) + " has the label " + std::to_string(given[i]) +
             ", but there " + (count == 1 ? "is " : "are ") + counted(count, "class", "classes") +
             ", counted from 0");
    }
  }

  int64_t size() const override { return size_; }
  int64_t label(int64_t index) const override { return labels_.labels[check(index)]; }
  const std::vector<std::string>& classes() const override { return labels_.classes; }
  std::string name(int64_t index) const override {
    check(index);
    return names_(index);
  }
  std::string describe() const override {
    return std::to_string(size_) + " " + kind_ + " in memory";
  }

 protected:
  size_t check(int64_t index) const {
    if (index < 0 || index >= size_) {
      throw InvalidArgument("[datastore] no observation with index " + std::to_string(index) +
                            " among " + std::to_string(size_) + " (" + describe() + ")");
    }
    return static_cast<size_t>(index);
  }

 private:
  void name_classes() {
    constexpr int64_t most = 1'000'000;  // limits the memory that a wrong label can allocate
    const int64_t last = *std::max_element(labels_.labels.begin(), labels_.labels.end());
    if (last >= most) refuse("a label is " + std::to_string(last) + ": name the classes");
    for (int64_t c = 0; c <= last; ++c) labels_.classes.push_back(std::to_string(c));
  }

  int64_t size_;
  ImageLabels labels_;
  std::string (*names_)(int64_t);
  std::string kind_;
};

class ImagesInMemory : public InMemory {
 public:
  ImagesInMemory(int64_t size, ImageLabels labels)
      : InMemory(size, std::move(labels), name_of, "images") {}
  Example read(int64_t index) const override {
    Image made = image(check(index));
    const Digest content = digest_of_image(made);
    return one_input(std::move(made), ClassLabel{label(index)}, content);
  }

 private:
  virtual Image image(size_t index) const = 0;
};

class ImageList final : public ImagesInMemory {
 public:
  ImageList(std::vector<Image> images, ImageLabels labels)
      : ImagesInMemory(static_cast<int64_t>(images.size()), std::move(labels)),
        images_(std::move(images)) {
    for (size_t i = 0; i < images_.size(); ++i) {
      const Image& image = images_[i];
      const std::string what = name_of(static_cast<int64_t>(i));
      check_size(image.height, image.width, image.channels, what);
      const auto bytes = static_cast<size_t>(image.height * image.width * image.channels);
      if (image.pixels.size() != bytes) {
        refuse(what + " has " + std::to_string(image.pixels.size()) + " bytes of pixels, not " +
               std::to_string(bytes));
      }
    }
  }

 private:
  Image image(size_t index) const override { return images_[index]; }

  std::vector<Image> images_;
};

class Block final : public ImagesInMemory {
 public:
  Block(ImageBlock block, ImageLabels labels)
      : ImagesInMemory(block.count, std::move(labels)), block_(std::move(block)) {}

 private:
  Image image(size_t index) const override {
    const auto bytes = static_cast<int64_t>(block_.height * block_.width * block_.channels);
    const auto begin = block_.pixels.begin() + static_cast<std::ptrdiff_t>(index) * bytes;
    return {block_.height, block_.width, block_.channels, {begin, begin + bytes}};
  }

  ImageBlock block_;
};

class Arrays final : public InMemory {
 public:
  Arrays(ArrayBlock block, ImageLabels labels)
      : InMemory(block.count, std::move(labels), name_of_array,
                 "arrays of " + block.shape.to_string()),
        block_(std::move(block)) {}
  ExampleSpec spec() const override {
    ExampleSpec spec;
    spec.inputs[0] = {.kind = ValueKind::array, .shape = block_.shape};
    return spec;
  }
  Example read(int64_t index) const override {
    const float* const from = elements(index);
    return one_input(Array{block_.shape, {from, from + block_.shape.elements()}},
                     ClassLabel{label(index)}, digest_of_array(block_.shape, from));
  }
  Digest content_digest(int64_t index) const override {
    return digest_of_array(block_.shape, elements(index));
  }

 private:
  const float* elements(int64_t index) const {
    return block_.values.data() + static_cast<int64_t>(check(index)) * block_.shape.elements();
  }

  ArrayBlock block_;
};

}  // namespace

DatastorePtr array_datastore(std::vector<Image> images, ImageLabels labels) {
  return std::make_shared<ImageList>(std::move(images), std::move(labels));
}

DatastorePtr array_datastore(ImageBlock block, ImageLabels labels) {
  check_size(block.height, block.width, block.channels, "images");
  const auto bytes = static_cast<uint64_t>(block.height * block.width * block.channels);
  if (block.count < 0 || block.pixels.size() % bytes != 0 ||
      block.pixels.size() / bytes != static_cast<uint64_t>(block.count)) {
    refuse("a block of " + std::to_string(block.pixels.size()) + " bytes for " +
           std::to_string(block.count) + " images of " + std::to_string(bytes));
  }
  return std::make_shared<Block>(std::move(block), std::move(labels));
}

DatastorePtr array_datastore(ArrayBlock block, ImageLabels labels) {
  const auto elements = static_cast<size_t>(block.shape.elements());
  if (block.shape.rank() < 1 || elements < 1) {
    refuse("arrays of " + block.shape.to_string() + " have no elements");
  }
  if (block.count < 0 || block.values.size() % elements != 0 ||
      block.values.size() / elements != static_cast<size_t>(block.count)) {
    refuse("a block of " + std::to_string(block.values.size()) + " floats for " +
           std::to_string(block.count) + " arrays of " + block.shape.to_string());
  }
  for (size_t i = 0; i < block.values.size(); ++i) {
    if (std::isfinite(block.values[i])) continue;
    refuse(name_of_array(static_cast<int64_t>(i / elements)) + ": element " +
           std::to_string(i % elements) + " is " + std::to_string(block.values[i]) +
           ", which is not finite");
  }
  return std::make_shared<Arrays>(std::move(block), std::move(labels));
}

DatastorePtr array_datastore(const Tensor& values, ImageLabels labels) {
  if (!values.defined() || values.dtype() != DType::f32 || values.shape().rank() < 2) {
    refuse("expected a tensor n x shape of f32, received " +
           (values.defined()
                ? std::string(name_of(values.dtype())) + " of " + values.shape().to_string()
                : std::string("none")));
  }
  return array_datastore(
      ArrayBlock{values.shape()[0], values.shape().without_batch(), values.to_vector()},
      std::move(labels));
}

}  // namespace lockstep
