// Sequences in memory, and the classes of their steps.
#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/memory/in_memory.h"

namespace lockstep {
namespace {

std::string name_of_sequence(int64_t index) { return "observation " + std::to_string(index); }

// "step 3", "step 3, element 2"
std::string where_in(const Shape& entry, size_t element) {
  const auto each = static_cast<size_t>(entry.elements());
  const std::string text = "step " + std::to_string(element / each);
  return each == 1 ? text : text + ", element " + std::to_string(element % each);
}

// The spec of an input that is a sequence of such arrays.
template <class Value>
ValueSpec spec_of(const std::vector<Value>& sequences) {
  constexpr bool kFloats = std::is_same_v<Value, Array>;
  ValueSpec spec{.kind = ValueKind::array};
  spec.sequence = true;
  spec.type = kFloats ? DType::f32 : DType::i32;
  if (!sequences.empty() && sequences[0].shape.rank() > 0) {
    spec.shape = sequences[0].shape.without_batch();
  }
  return spec;
}

// Value: Array or IntegerArray.
template <class Value>
class Sequences final : public InMemory {
 public:
  Sequences(const std::string& where, std::vector<Value> sequences, ImageLabels labels)
      : InMemory(where, static_cast<int64_t>(sequences.size()), std::move(labels), name_of_sequence,
                 spec_of(sequences).to_string()),
        spec_(spec_of(sequences)),
        sequences_(std::move(sequences)) {
    if (sequences_.empty()) refuse("there are no sequences, so the shape of a step is not known");
    for (size_t i = 0; i < sequences_.size(); ++i) check_sequence(i);
  }

  ExampleSpec spec() const override {
    ExampleSpec spec;
    spec.inputs[0] = spec_;
    return spec;
  }
  Example read(int64_t index) const override {
    const Value& sequence = sequences_[check(index)];
    return one_input(sequence, ClassLabel{label(index)}, content_digest(index));
  }
  Digest content_digest(int64_t index) const override {
    const Value& sequence = sequences_[check(index)];
    return digest_of_array(sequence.shape, sequence.values.data());
  }
  std::optional<int64_t> steps(int64_t index, size_t value) const override {
    const Value& sequence = sequences_[check(index)];
    return value == 0 ? std::optional<int64_t>(sequence.shape[0]) : std::nullopt;
  }

 private:
  void check_sequence(size_t i) const {
    const Value& sequence = sequences_[i];
    const std::string name = name_of_sequence(static_cast<int64_t>(i));
    const Shape& shape = sequence.shape;
    const bool floats = spec_.type == DType::f32;
    if (shape.rank() < (floats ? 2 : 1)) {
      throw InvalidArgument("[sequence_datastore] " + name + " has the shape " + shape.to_string() +
                                ", but a sequence is steps x the shape of a step",
                            floats ? "a sequence with one channel is steps x 1" : "");
    }
    if (shape.without_batch() != spec_.shape) {
      refuse(name + " has steps of " + shape.without_batch().to_string() +
             ", but observation 0 has steps of " + spec_.shape.to_string());
    }
    if (spec_.shape.elements() < 1) refuse("steps of " + spec_.shape.to_string() + " are empty");
    if (shape[0] < 1) refuse(name + " has no steps");
    if (static_cast<int64_t>(sequence.values.size()) != shape.elements()) {
      refuse(name + " has " + counted(static_cast<int64_t>(sequence.values.size()), "element") +
             ", but its shape is " + shape.to_string());
    }
    for (size_t k = 0; k < sequence.values.size(); ++k) {
      const auto value = sequence.values[k];
      if constexpr (std::is_same_v<Value, Array>) {
        if (std::isfinite(value)) continue;
        refuse(name + ": " + where_in(spec_.shape, k) + " is " + std::to_string(value) +
               ", which is not finite");
      } else {
        if (value >= 0) continue;
        refuse(name + ": " + where_in(spec_.shape, k) + " is " + std::to_string(value) +
               ", but integers count from 0");
      }
    }
  }

  ValueSpec spec_;
  std::vector<Value> sequences_;
};

}  // namespace

DatastorePtr sequence_datastore(std::vector<Array> sequences, ImageLabels labels) {
  return std::make_shared<Sequences<Array>>("sequence_datastore", std::move(sequences),
                                            std::move(labels));
}

DatastorePtr sequence_datastore(std::vector<IntegerArray> sequences, ImageLabels labels) {
  return std::make_shared<Sequences<IntegerArray>>("sequence_datastore", std::move(sequences),
                                                   std::move(labels));
}

DatastorePtr step_labels(StepLabels labels) {
  constexpr int32_t kMost = 1'000'000;  // limits the memory that a wrong label can allocate
  const auto refuse = [](const std::string& what) {
    throw InvalidArgument("[step_labels] " + what);
  };
  const bool named = !labels.classes.empty();
  std::vector<IntegerArray> sequences;
  int32_t last = -1;
  for (std::vector<int32_t>& given : labels.labels) {
    const auto i = static_cast<int64_t>(sequences.size());
    const auto steps = static_cast<int64_t>(given.size());
    for (size_t k = 0; k < given.size(); ++k) {
      const int32_t label = given[k];
      const auto count = static_cast<int64_t>(labels.classes.size());
      last = std::max(last, label);
      if (label >= 0 && (named ? label < count : label < kMost)) continue;
      refuse(name_of_sequence(i) + ": step " + std::to_string(k) + " has the label " +
             std::to_string(label) +
             (named ? ", but there are " + counted(count, "class", "classes") + ", counted from 0"
              : label < 0 ? ", but labels count from 0"
                          : ": name the classes"));
    }
    sequences.push_back({{steps}, std::move(given)});
  }
  for (int32_t c = 0; !named && c <= last; ++c) labels.classes.push_back(std::to_string(c));
  std::vector<int64_t> none(sequences.size(), 0);
  return std::make_shared<Sequences<IntegerArray>>(
      "step_labels", std::move(sequences),
      ImageLabels{.labels = std::move(none), .classes = std::move(labels.classes)});
}

}  // namespace lockstep
