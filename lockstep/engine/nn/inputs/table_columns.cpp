// The names of the columns of the tables that a network learned from.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/nn/network_state.h"

namespace lockstep {
namespace {

void check_column_names(const std::vector<std::string>& names, const std::string& what,
                        int64_t elements) {
  if (names.empty()) return;
  if (static_cast<int64_t>(names.size()) != elements) {
    throw InvalidArgument("[columns] " + what + " has " + counted(elements, "element") +
                          ", received " + counted(names.size(), "name") + " of columns");
  }
  for (const std::string& name : names) {
    if (name.empty()) throw InvalidArgument("[columns] a column of " + what + " has no name");
    if (is_utf8(name)) continue;
    throw InvalidArgument("[columns] the column name `" + printable(name) + "` is not UTF-8",
                          "save the table as UTF-8");
  }
  if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) return;
  throw InvalidArgument("[columns] two columns of " + what + " have the same name");
}

}  // namespace

bool TableColumns::empty() const {
  return label.empty() && target.empty() &&
         std::all_of(inputs.begin(), inputs.end(), [](const auto& names) { return names.empty(); });
}

nlohmann::ordered_json TableColumns::to_json() const {
  nlohmann::ordered_json object{{"inputs", inputs}, {"target", target}, {"label", label}};
  if (!means.empty()) object["means"] = means;
  return object;
}

TableColumns TableColumns::from_json(const nlohmann::json& object) {
  try {
    return {object.at("inputs").get<std::vector<std::vector<std::string>>>(),
            object.at("target").get<std::vector<std::string>>(),
            object.at("label").get<std::string>(),
            object.value("means", std::map<std::string, float>())};
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(
        "[columns] expected the fields `inputs` (lists of names), `target` (names), `label` and, "
        "if there are some, `means` (numbers by name)");
  }
}

const TableColumns& Network::columns() const { return state_->columns; }

void Network::set_columns(TableColumns columns) {
  const std::vector<Shape> shapes = input_shapes();
  if (!columns.inputs.empty() && columns.inputs.size() != shapes.size()) {
    throw InvalidArgument("[columns] the network has " + counted(shapes.size(), "input") +
                          ", received the columns of " + std::to_string(columns.inputs.size()));
  }
  const std::vector<NetworkValue> values = inputs();
  for (size_t i = 0; i < columns.inputs.size(); ++i) {
    // Those of tokens are the vocabulary, which may leave room.
    const bool tokens = values[i].type == DType::i32;
    check_column_names(columns.inputs[i], "input " + std::to_string(i + 1),
                       tokens ? std::ssize(columns.inputs[i]) : shapes[i].elements());
  }
  if (!columns.target.empty()) {
    check_column_names(columns.target, "the target", output_shapes().at(0).elements());
  }
  if (!columns.label.empty()) check_column_names({columns.label}, "the labels", 1);
  state_->columns = std::move(columns);
}

}  // namespace lockstep
