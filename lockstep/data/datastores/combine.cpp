#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/images/pixel_labels.h"

namespace lockstep {
namespace {

// Names that are equal appear once.
std::string joined(std::string name, const std::string& other) {
  return name == other ? name : name + " + " + other;
}

void check_sizes(const char* where, const Datastore& one, const Datastore& other,
                 const std::string& what) {
  if (one.size() == other.size()) return;
  throw InvalidArgument("[" + std::string(where) + "] there are " + std::to_string(other.size()) +
                            " " + what + " (" + other.describe() + ") for " +
                            counted(one.size(), "observation") + " (" + one.describe() + ")",
                        "example i of each belong together: select them with subset()");
}

class Combined final : public DatastoreWrapper {
 public:
  Combined(std::vector<DatastorePtr> stores, std::vector<std::string> inputs)
      : DatastoreWrapper(stores.empty() ? nullptr : stores[0]), stores_(std::move(stores)) {
    if (stores_.size() < 2) {
      throw InvalidArgument("[combine] expected two or more datastores, received one");
    }
    for (const DatastorePtr& store : stores_) {
      if (!store) throw InvalidArgument("[combine] a datastore is null");
      check_sizes("combine", wrapped(), *store, "observations");
      ExampleSpec spec = store->spec();
      if (store != stores_[0] && spec.target) {
        throw InvalidArgument("[combine] only the first datastore may have targets, but " +
                              store->describe() + " has some");
      }
      if (store == stores_[0]) {
        spec_.target = spec.target;
        spec_.label_column = spec.label_column;
      }
      for (size_t k = 0; k < spec.inputs.size(); ++k) from_.emplace_back(store.get(), k);
      std::move(spec.inputs.begin(), spec.inputs.end(), std::back_inserter(spec_.inputs));
    }
    from_.emplace_back(stores_[0].get(), stores_[0]->spec().inputs.size());  // the target
    if (inputs.empty()) return;
    if (inputs.size() != spec_.inputs.size()) {
      throw InvalidArgument("[combine] received " + counted(inputs.size(), "name") + " for " +
                            counted(spec_.inputs.size(), "input"));
    }
    if (std::set<std::string>(inputs.begin(), inputs.end()).size() != inputs.size()) {
      throw InvalidArgument("[combine] two inputs have the same name");
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].empty()) throw InvalidArgument("[combine] the name of an input is empty");
      spec_.inputs[i].input = std::move(inputs[i]);
    }
  }

  ExampleSpec spec() const override { return spec_; }
  std::vector<std::string> notices() const override { return notices_of(stores_); }
  void expect(const std::vector<int64_t>& indices) const override {
    for (const DatastorePtr& store : stores_) store->expect(indices);
  }
  std::optional<int64_t> steps(int64_t index, size_t value) const override {
    return from_.at(value).first->steps(index, from_.at(value).second);
  }
  Example read(int64_t index) const override {
    Example all = wrapped().read(index);
    std::vector<Digest> contents{all.content};
    for (size_t i = 1; i < stores_.size(); ++i) {
      Example more = stores_[i]->read(index);
      contents.push_back(more.content);
      std::move(more.inputs.begin(), more.inputs.end(), std::back_inserter(all.inputs));
    }
    all.content = content_of(contents);
    return all;
  }
  std::string name(int64_t index) const override {
    std::string name = wrapped().name(index);
    for (size_t i = 1; i < stores_.size(); ++i) {
      name = joined(std::move(name), stores_[i]->name(index));
    }
    return name;
  }
  std::string describe() const override {
    std::string text = wrapped().describe();
    for (size_t i = 1; i < stores_.size(); ++i) text += " + " + stores_[i]->describe();
    return text;
  }
  Digest content_digest(int64_t index) const override {
    std::vector<Digest> contents;
    for (const DatastorePtr& store : stores_) contents.push_back(store->content_digest(index));
    return content_of(contents);
  }

 private:
  // The names are part of it, because they determine which input of the network gets which value.
  Digest content_of(const std::vector<Digest>& contents) const {
    Digester digester;
    for (const Digest& content : contents) digester.add(content);
    for (const ValueSpec& input : spec_.inputs) digester.add(std::string_view(input.input));
    return digester.finish();
  }

  std::vector<DatastorePtr> stores_;
  // The store of each input and of the target, and its number there.
  std::vector<std::pair<const Datastore*, size_t>> from_;
  ExampleSpec spec_{.inputs = {}};
};

class WithTargets final : public DatastoreWrapper {
 public:
  WithTargets(DatastorePtr inputs, DatastorePtr targets, TargetLengths lengths)
      : DatastoreWrapper(std::move(inputs)), targets_(std::move(targets)) {
    if (!targets_) throw InvalidArgument("[with_targets] the targets are null");
    check_sizes("with_targets", wrapped(), *targets_, "targets");
    if (wrapped().spec().target) {
      throw InvalidArgument("[with_targets] the examples of " + wrapped().describe() +
                            " have targets already");
    }
    const ExampleSpec spec = targets_->spec();
    if (spec.inputs.size() != 1 || spec.target) {
      throw InvalidArgument(
          "[with_targets] a target is one image, array or sequence, but the examples of " +
          targets_->describe() + " have several inputs or targets");
    }
    spec_ = wrapped().spec();
    spec_.target = spec.inputs[0];
    by_step_ = spec_.target->sequence && lengths == TargetLengths::as_inputs;
    for (int64_t i = 0; by_step_ && i < size(); ++i) {
      const std::string wrong = wrong_length(i, [&](size_t k) { return steps(i, k); });
      if (!wrong.empty()) throw InvalidArgument(wrong, kWrongLength);
    }
  }

  ExampleSpec spec() const override { return spec_; }
  int64_t label(int64_t index) const override {
    return of_classes() ? targets_->label(index) : wrapped().label(index);
  }
  const std::vector<std::string>& classes() const override {
    return of_classes() ? targets_->classes() : wrapped().classes();
  }
  std::optional<int64_t> steps(int64_t index, size_t value) const override {
    return value < spec_.inputs.size() ? wrapped().steps(index, value) : targets_->steps(index, 0);
  }
  std::vector<std::string> notices() const override {
    std::vector<std::string> all = wrapped().notices();
    for (std::string& text : targets_->notices()) {
      if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(std::move(text));
    }
    return all;
  }
  void expect(const std::vector<int64_t>& indices) const override {
    wrapped().expect(indices);
    targets_->expect(indices);
  }
  // Of label images alone: others are not kept by what the file system says.
  std::optional<Digest> file_state() const override {
    if (!spec_.target->pixel_labels()) return std::nullopt;
    const std::optional<Digest> inputs = changed_state("label images", {});
    const std::optional<Digest> labels = targets_->file_state();
    if (!inputs || !labels) return std::nullopt;
    return content_of(*inputs, *labels);
  }
  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    Example target = targets_->read(index);
    if (spec_.target->pixel_labels()) fit_label_image(index, example, target);
    if (by_step_) check_read(index, example, target.inputs.at(0));
    std::visit([&](auto& value) { example.target = std::move(value); }, target.inputs[0]);
    example.content = content_of(example.content, target.content);
    return example;
  }
  std::string name(int64_t index) const override {
    return joined(wrapped().name(index), targets_->name(index));
  }
  std::string describe() const override {
    const std::string inputs = wrapped().describe(), targets = targets_->describe();
    return inputs == targets ? inputs : inputs + " with the targets " + targets;  // of one table
  }
  Digest content_digest(int64_t index) const override {
    return content_of(wrapped().content_digest(index), targets_->content_digest(index));
  }

 private:
  static Digest content_of(const Digest& input, const Digest& target) {
    Digester digester;
    digester.add(input);
    digester.add("target");
    digester.add(target);
    return digester.finish();
  }

  static constexpr const char* kWrongLength =
      "targets by step need as many steps as their inputs; TargetLengths::any allows other "
      "lengths";
  static int64_t steps_of(const ExampleValue& value) {
    if (const auto* const array = std::get_if<Array>(&value)) return array->shape[0];
    if (const auto* const array = std::get_if<IntegerArray>(&value)) return array->shape[0];
    return 0;
  }

  static std::string pixels_of(int64_t height, int64_t width) {
    return std::to_string(height) + " x " + std::to_string(width);
  }
  // Label images have the size of the whole image. They are reduced with it.
  void fit_label_image(int64_t index, const Example& example, Example& target) const {
    const auto* const image = std::get_if<Image>(&example.inputs.at(0));
    auto* const labels = std::get_if<Image>(&target.inputs.at(0));
    if (image == nullptr || labels == nullptr) return;
    const DecodedScale& scale = image->scale;
    const bool reduced = scale.divisor > 1;
    const int64_t height = reduced ? scale.height : image->height;
    const int64_t width = reduced ? scale.width : image->width;
    if (labels->height == height && labels->width == width) {
      if (reduced) *labels = reduce_labels(*labels, scale);
      return;
    }
    throw DataError("[with_targets] " + wrapped().name(index) + " (" + wrapped().describe() +
                        ") has " + pixels_of(height, width) + " pixels, but its label image " +
                        targets_->name(index) + " (" + targets_->describe() + ") has " +
                        pixels_of(labels->height, labels->width),
                    "each pixel needs a label: the two have one size before they are resized or "
                    "cropped together");
  }
  bool of_classes() const { return spec_.target->type == DType::i32; }
  // What is wrong with the target of an example whose values have `steps(number)` steps.
  std::string wrong_length(int64_t index,
                           const std::function<std::optional<int64_t>(size_t)>& steps) const {
    const std::optional<int64_t> of_target = steps(spec_.inputs.size());
    for (size_t k = 0; of_target && k < spec_.inputs.size(); ++k) {
      if (!spec_.inputs[k].sequence) continue;
      const std::optional<int64_t> of_input = steps(k);
      if (!of_input || *of_input == *of_target) continue;
      return "[with_targets] " + name(index) + " (" + describe() +
             "): " + (spec_.inputs.size() == 1 ? "the input" : "input " + std::to_string(k + 1)) +
             " has " + counted(*of_input, "step", "steps") + ", but the target has " +
             std::to_string(*of_target);
    }
    return {};
  }
  void check_read(int64_t index, const Example& example, const ExampleValue& target) const {
    const std::string wrong = wrong_length(index, [&](size_t k) -> std::optional<int64_t> {
      return steps_of(k < example.inputs.size() ? example.inputs[k] : target);
    });
    if (!wrong.empty()) throw DataError(wrong, kWrongLength);
  }

  DatastorePtr targets_;
  ExampleSpec spec_;
  bool by_step_ = false;
};

}  // namespace

DatastorePtr combine(std::vector<DatastorePtr> stores, std::vector<std::string> inputs) {
  return std::make_shared<Combined>(std::move(stores), std::move(inputs));
}

DatastorePtr with_targets(DatastorePtr inputs, DatastorePtr targets, TargetLengths lengths) {
  return std::make_shared<WithTargets>(std::move(inputs), std::move(targets), lengths);
}

}  // namespace lockstep
