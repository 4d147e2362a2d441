#include "lockstep/runs/sources/sequence_source.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/described.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/runs/sources/target_table.h"

namespace lockstep {
namespace {

// The one line of each file.
DatastorePtr single_steps(const DatastorePtr& targets) {
  ArrayBlock block{.count = targets->size(), .shape = targets->spec().inputs.at(0).shape};
  std::vector<std::string> names;
  for (int64_t i = 0; i < targets->size(); ++i) {
    const Array one = read_array(*targets, i);
    if (one.shape[0] != 1) {
      throw DataError("[data] the targets " + targets->name(i) + " of " + targets->describe() +
                          " have " + counted(one.shape[0], "step") +
                          ", but the network gives one result for a sequence",
                      "give one line for each sequence, or leave out the layer that takes the "
                      "last step or the mean of the steps");
    }
    block.values.insert(block.values.end(), one.values.begin(), one.values.end());
    names.push_back(targets->name(i));
  }
  return std::make_shared<Described>(array_datastore(std::move(block)),
                                     Described::Description{
                                         .source = targets->describe(),
                                         .names = std::move(names),
                                         .columns = targets->spec().inputs[0].columns,
                                         .notices = targets->notices(),
                                     });
}

}  // namespace

bool takes_only_sequences(const Network& network) {
  return std::ranges::all_of(network.inputs(), &NetworkValue::sequence);
}

SequenceTargets targets_of_model(const Model& model, SequenceTargets given) {
  if (given.any()) return given;
  const TableColumns& columns = model.network.columns();
  if (model.network.outputs().at(0).sequence && takes_labels(model.network.loss())) {
    return {.label_column = columns.label};
  }
  const std::string& targets = model.preparation.targets;
  if (targets == "columns") {
    return {.columns = columns_of_targets(columns.target, model.preparation.categories)};
  }
  return {.targets = targets};
}

StepTargets step_targets(const SequenceTargets& given, const Network& network) {
  const bool labels = !given.label_column.empty();
  if (labels + !given.columns.empty() + !given.targets.empty() > 1) {
    throw InvalidArgument("[data] the targets of the sequences are given in two ways",
                          "set one of label_column, target_columns and targets");
  }
  StepTargets targets{.label_column = given.label_column,
                      .columns = given.columns,
                      .next_step = given.targets == targets_next_step};
  if (targets.any() && !network.outputs().at(0).sequence) {
    throw InvalidArgument("[data] each step has a target (" + targets.describe() +
                              "), but the network gives one result for a sequence",
                          "leave out the layer that takes the last step or the mean of the steps");
  }
  return targets;
}

DatastorePtr with_other_targets(DatastorePtr sequences, const std::string& targets, bool header,
                                const Network& network) {
  if (targets.empty() || targets == targets_next_step) return sequences;
  if (targets == image_targets_inputs) return with_targets(sequences, sequences);
  DatastorePtr matched =
      match_by_name(*sequences, sequence_folder(targets, {.labeled = false, .header = header}));
  if (!network.outputs().at(0).sequence) matched = single_steps(matched);
  return with_targets(std::move(sequences), std::move(matched));
}

}  // namespace lockstep
