// Names in an initial model: of columns, tokens, targets and classes.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct JobData;

// The columns of a training's data, `own`, where an input with the names of the model's has their
// order. Thread-safe.
TableColumns in_order_of_model(TableColumns own, const TableColumns& model);

// What a user should know of values that are taken by position although names differ, a sentence
// each. `path` is the model. `head`: also of the targets. Thread-safe.
std::vector<std::string> notes_of_columns(const TableColumns& own, const TableColumns& model,
                                          const std::string& path, const Network& network,
                                          bool head);

// The same of the classes of a head with the values of the model; "": they are the same, or one of
// both has none. Thread-safe.
std::string note_of_classes(const std::vector<std::string>& own,
                            const std::vector<std::string>& model, const std::string& path);

// Throws InvalidArgument if a network with several outputs has `target_columns` in another order
// than those of the model: data get the model's order, but its outputs would keep theirs.
void check_order_of_targets(const Network& network, const JobData& data,
                            const std::vector<std::string>& model, const std::string& path);

}  // namespace lockstep
