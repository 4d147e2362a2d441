#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastore_wrapper.h"

namespace lockstep {
namespace {

class Reordered final : public DatastoreWrapper {
 public:
  Reordered(DatastorePtr store, size_t input, std::vector<size_t> from, std::string notice)
      : DatastoreWrapper(std::move(store)),
        input_(input),
        from_(std::move(from)),
        notice_(std::move(notice)),
        spec_(wrapped().spec()) {
    const auto refuse = [&](const std::string& what) {
      throw InvalidArgument("[reorder] " + what + " (" + wrapped().describe() + ")");
    };
    ValueSpec* const value = input_ < spec_.inputs.size()                    ? &spec_.inputs[input_]
                             : input_ == spec_.inputs.size() && spec_.target ? &*spec_.target
                                                                             : nullptr;
    if (value == nullptr) refuse("there is no input " + std::to_string(input_));
    if (value->kind != ValueKind::array || value->shape.rank() != 1 || value->type != DType::f32) {
      refuse("input " + std::to_string(input_) + " is not a vector, but " + value->to_string());
    }
    const auto elements = static_cast<size_t>(value->shape.elements());
    std::vector<bool> taken(elements, false);
    for (const size_t k : from_) {
      if (k < elements && !taken[k])
        taken[k] = true;
      else
        refuse("an order must have each element once");
    }
    if (from_.size() != elements) refuse("an order must have each element once");
    std::vector<std::string> columns;
    for (const size_t k : from_) {
      if (k < value->columns.size()) columns.push_back(std::move(value->columns[k]));
    }
    value->columns = std::move(columns);
    unchanged_ = std::is_sorted(from_.begin(), from_.end());
  }

  ExampleSpec spec() const override { return spec_; }
  Example read(int64_t index) const override {
    Example example = wrapped().read(index);
    if (unchanged_) return example;
    const bool of_input = input_ < spec_.inputs.size();
    Array* const array = of_input ? std::get_if<Array>(&example.inputs.at(input_))
                                  : std::get_if<Array>(&example.target);
    const bool sequence = of_input ? spec_.inputs[input_].sequence : spec_.target->sequence;
    if (array == nullptr || array->values.size() % from_.size() != 0 ||
        (!sequence && array->values.size() != from_.size())) {
      throw DataError("[reorder] " + name(index) + " (" + describe() +
                      ") is not the array that its datastore announces");
    }
    std::vector<float> values;
    values.reserve(array->values.size());
    for (size_t step = 0; step < array->values.size(); step += from_.size()) {
      for (const size_t k : from_) values.push_back(array->values[step + k]);
    }
    array->values = std::move(values);
    const bool alone = of_input && example.inputs.size() == 1 && !spec_.target;
    example.content =
        alone ? digest_of_array(array->shape, array->values.data()) : content_of(example.content);
    return example;
  }
  std::vector<std::string> notices() const override {
    std::vector<std::string> all = wrapped().notices();
    if (!notice_.empty()) all.push_back(notice_);
    return all;
  }
  Digest content_digest(int64_t index) const override {
    if (unchanged_) return wrapped().content_digest(index);
    if (spec_.inputs.size() == 1 && !spec_.target) return read(index).content;
    return content_of(wrapped().content_digest(index));
  }

 private:
  // Of examples with several parts: the original contents and the order.
  Digest content_of(const Digest& original) const {
    Digester digester;
    digester.add(original);
    digester.add(static_cast<uint64_t>(input_));
    for (const size_t k : from_) digester.add(static_cast<uint64_t>(k));
    return digester.finish();
  }

  const size_t input_;
  const std::vector<size_t> from_;
  const std::string notice_;
  ExampleSpec spec_;
  bool unchanged_ = false;  // there is a notice alone
};

}  // namespace

DatastorePtr reorder(DatastorePtr store, size_t input, std::vector<size_t> from,
                     const std::string& notice) {
  return std::make_shared<Reordered>(std::move(store), input, std::move(from), notice);
}

}  // namespace lockstep
