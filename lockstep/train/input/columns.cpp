// Columns of tables for a network, by name.
#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/tables/column_match.h"
#include "lockstep/train/input/targets.h"

namespace lockstep {
namespace {

DatastorePtr in_order(const Network& network, const TableColumns& columns, DatastorePtr data) {
  if (data == nullptr) throw InvalidArgument("[columns] the datastore is null");
  const ExampleSpec spec = data->spec();
  if (columns.empty() || columns.inputs.size() != spec.inputs.size()) return data;
  const std::vector<size_t> from = input_indices(network, *data);
  for (size_t k = 0; k < columns.inputs.size(); ++k) {
    data = with_columns(std::move(data), from[k], columns.inputs[k]);
  }
  return with_columns(std::move(data), spec.inputs.size(), columns.target);
}

}  // namespace

TableColumns columns_of(const Network& network, const Datastore& data,
                        const DatastorePtr& targets) {
  const ExampleSpec spec = data.spec();
  const std::vector<Shape> shapes = network.input_shapes();
  TableColumns columns;
  if (shapes.size() == spec.inputs.size()) {
    const std::vector<size_t> from = input_indices(network, data);
    for (size_t k = 0; k < shapes.size(); ++k) {
      // Other sizes are refused with all sizes, see check_inputs().
      const ValueSpec& input = spec.inputs[from[k]];
      const bool fits = input.type == DType::i32 ||
                        input.columns.size() == static_cast<size_t>(shapes[k].elements());
      columns.inputs.push_back(fits ? input.columns : std::vector<std::string>());
    }
  }
  const std::optional<ValueSpec> target = targets ? targets->spec().inputs.at(0) : spec.target;
  const std::vector<Shape> outputs = network.output_shapes();
  if (target && outputs.size() == 1 &&
      target->columns.size() == static_cast<size_t>(outputs[0].elements())) {
    columns.target = target->columns;
  }
  if (!target || target->type == DType::i32) columns.label = spec.label_column;
  columns.means = spec.means;
  return columns.empty() ? TableColumns() : columns;
}

DatastorePtr match_columns(const Network& network, DatastorePtr data) {
  return in_order(network, network.columns(), std::move(data));
}

DatastorePtr match_target_columns(const TableColumns& columns, const DatastorePtr& targets,
                                  const DatastorePtr& data, const DatastorePtr& matched) {
  if (!targets) return nullptr;
  if (targets == data) return matched;
  return with_columns(targets, 0, columns.target);
}

MatchedData match_all_columns(const Network& network, TrainingData data) {
  TableColumns columns = network.columns();
  // Otherwise check_training() refuses it.
  if (data.training && network.analyze().empty()) {
    if (columns.empty()) columns = columns_of(network, *data.training, data.training_targets);
    const auto part = [&](DatastorePtr& store, DatastorePtr& targets) {
      if (!store) return;
      DatastorePtr matched = in_order(network, columns, store);
      targets = match_target_columns(columns, targets, store, matched);
      store = std::move(matched);
    };
    part(data.training, data.training_targets);
    part(data.validation, data.validation_targets);
  }
  return {std::move(data), std::move(columns)};
}

std::vector<std::string> notices_of(const TrainingData& data) {
  std::vector<std::string> all;
  for (const DatastorePtr& store :
       {data.training, data.validation, data.training_targets, data.validation_targets}) {
    if (!store) continue;
    for (std::string& notice : store->notices()) {
      if (std::find(all.begin(), all.end(), notice) == all.end()) all.push_back(std::move(notice));
    }
  }
  return all;
}

}  // namespace lockstep
