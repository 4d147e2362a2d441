// Saves and resumes custom loops: see custom_loop.h.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/state/checkpoint.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* kKind = "loop";

// The arrays of a solver's state, with their names in files.
struct SolverArrays {
  std::string solver;
  std::vector<std::pair<std::string, std::vector<Tensor>*>> arrays;
  int64_t* updates = nullptr;  // null: the state does not count them
};

SolverArrays arrays_of(SgdmState& state) { return {"sgdm", {{"velocity", &state.velocity}}}; }
SolverArrays arrays_of(AdamState& state) {
  return {"adam", {{"mean", &state.mean}, {"square", &state.square}}, &state.iteration};
}
SolverArrays arrays_of(RmspropState& state) { return {"rmsprop", {{"square", &state.square}}}; }

SolverArrays arrays_of(const LoopPart& part) {
  return std::visit(
      [&](auto* state) {
        if (!state) {
          throw InvalidArgument("[loop] the part " + part.name + " has no state of a solver");
        }
        return arrays_of(*state);
      },
      part.solver);
}

void check_parts(const std::vector<LoopPart>& parts) {
  if (parts.empty()) throw InvalidArgument("[loop] there are no parts, at least one is needed");
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string& name = parts[i].name;
    if (name.empty() || name.find('/') != std::string::npos) {
      throw InvalidArgument("[loop] a part's name must not be empty or contain '/', received \"" +
                            name + "\"");
    }
    for (size_t j = 0; j < i; ++j) {
      if (parts[j].name != name) continue;
      throw InvalidArgument("[loop] two parts have the name " + name,
                            "give the networks of a loop different names");
    }
    if (!parts[i].network.initialized()) {
      throw InvalidArgument("[loop] the network of the part " + name + " is not initialized");
    }
  }
}

std::string parameter_key(const LoopPart& part, size_t p) {
  return part.name + "/learnable/" + part.network.parameters()[p].name;
}
std::string state_key(const LoopPart& part, size_t k) {
  return part.name + "/state/" + part.network.state()[k].name;
}
std::string row_key(const LoopPart& part, const std::string& state) {
  return part.name + "/rows/" + state;
}
std::string solver_key(const LoopPart& part, size_t p, const std::string& array) {
  return part.name + "/solver/" + part.network.parameters()[p].name + "." + array;
}

// What a file says about a part, in addition to tensors.
ordered_json description_of(const LoopPart& part) {
  const SolverArrays solver = arrays_of(part);
  ordered_json object{{"solver", solver.solver}, {"layers", part.network.canonical_layers()}};
  const size_t parameters = part.network.parameters().size();
  // A state has no arrays before the first update.
  const bool updated = parameters > 0 && !solver.arrays.front().second->empty();
  for (const auto& [name, tensors] : solver.arrays) {
    if (tensors->size() == (updated ? parameters : 0)) continue;
    throw InvalidArgument("[loop] `" + name + "` in the state of " + solver.solver + " is of " +
                          counted(tensors->size(), "parameter") + ", but the network of the " +
                          "part " + part.name + " has " + std::to_string(parameters));
  }
  object["updated"] = updated;
  if (!part.network.columns().empty()) object["columns"] = part.network.columns().to_json();
  if (solver.updates) object["updates"] = *solver.updates;
  if (const int64_t rows = part.network.made_rows()) object["rows"] = rows;
  return object;
}

[[noreturn]] void refuse_file(const std::string& path, const std::string& what,
                              const std::string& hint) {
  throw InvalidArgument("[loop] " + path + " belongs to another loop: " + what, hint);
}

// Throws InvalidArgument if the file is of another loop.
void check_loop(const std::string& path, const std::vector<LoopPart>& parts,
                const ordered_json& there) {
  for (const auto& [name, unused] : there.items()) {
    const auto has_name = [&there_name = name](const LoopPart& p) { return p.name == there_name; };
    if (std::any_of(parts.begin(), parts.end(), has_name)) continue;
    refuse_file(path, "it has the part " + name + ", which is missing here",
                "load all parts that were saved");
  }
  for (const LoopPart& part : parts) {
    if (!there.contains(part.name)) {
      refuse_file(path, "it has no part " + part.name,
                  "load the parts that were saved, by their names");
    }
    const ordered_json& saved = there.at(part.name);
    const ordered_json here = description_of(part);
    for (const std::string field : {"solver", "layers"}) {
      const std::string different =
          first_difference(here.at(field), saved.at(field), part.name + "." + field);
      if (!different.empty())
        refuse_file(path, different, "resume with the same networks and solvers");
    }
    const int64_t rows = saved.value("rows", int64_t{0}), made = part.network.made_rows();
    if (made != 0 && made != rows) {
      refuse_file(path,
                  "the part " + part.name + " was saved " +
                      (rows == 0 ? "without states by row"
                                 : "with states by row for " + counted(rows, "row")) +
                      ", but they are made for " + std::to_string(made),
                  "call make_row_states() with the same number, or leave it to load_loop()");
    }
    if (!here.contains("columns") || !saved.contains("columns")) continue;
    const std::string different =
        first_difference(here.at("columns"), saved.at("columns"), part.name + ".columns");
    if (different.empty()) continue;
    refuse_file(path, different,
                "load it before set_columns(), and give the data its columns with match_columns()");
  }
}

// A change that load_loop() makes after all checks.
struct Assignment {
  Tensor to, from;
};

}  // namespace

void save_loop(FileSystem& files, const std::string& path, const LoopPosition& position,
               const std::vector<LoopPart>& parts) {
  check_parts(parts);
  ordered_json json{
      {"iteration", position.iteration}, {"epoch", position.epoch}, {"batch", position.batch}};
  std::vector<NamedTensor> tensors;
  for (const LoopPart& part : parts) {
    json["parts"][part.name] = description_of(part);
    const SolverArrays solver = arrays_of(part);
    for (size_t p = 0; p < part.network.parameters().size(); ++p) {
      tensors.push_back({parameter_key(part, p), part.network.parameters()[p].value});
      for (const auto& [name, arrays] : solver.arrays) {
        if (!arrays->empty()) tensors.push_back({solver_key(part, p, name), (*arrays)[p]});
      }
    }
    for (size_t k = 0; k < part.network.state().size(); ++k) {
      tensors.push_back({state_key(part, k), part.network.state()[k].value});
    }
    for (const RowState& state : part.network.row_states()) {
      tensors.push_back({row_key(part, state.name), state.value});
    }
  }
  for (const auto& e : numerics_fingerprint(parts[0].network.device())) {
    json["fingerprint"][e.name] = e.value;
  }
  make_folders(files, folder_of(path));
  write_atomically(files, path, write_checked(std::move(tensors), kKind, json));
}

LoopPosition load_loop(FileSystem& files, const std::string& path,
                       const std::vector<LoopPart>& parts, bool allow_other_numerics) {
  check_parts(parts);
  LoopPosition position;
  std::vector<FingerprintEntry> fingerprint;
  std::vector<Assignment> assignments;
  std::vector<std::function<void()>> states;
  try {
    const CheckedFile saved = read_checked(files, path, kKind);
    const ordered_json& json = saved.position;
    position = {json.at("iteration").get<int64_t>(), json.at("epoch").get<int64_t>(),
                json.at("batch").get<int64_t>()};
    check_loop(path, parts, json.at("parts"));
    for (const auto& [name, value] : json.at("fingerprint").items()) {
      fingerprint.push_back({name, value.get<std::string>()});
    }
    for (const LoopPart& part : parts) {
      const auto& parameters = part.network.parameters();
      const auto values_for = [&](const std::string& key, const Tensor& like) {
        const Tensor& from = saved.file.at(key, path);
        if (from.shape() == like.shape() && from.dtype() == like.dtype()) return from;
        throw DataError("[loop] " + path + ": " + key + " is " + from.spec().to_string() +
                        ", but must be " + like.spec().to_string());
      };
      for (size_t p = 0; p < parameters.size(); ++p) {
        const Tensor& value = parameters[p].value;
        assignments.push_back({value, values_for(parameter_key(part, p), value)});
      }
      for (size_t k = 0; k < part.network.state().size(); ++k) {
        const Tensor& value = part.network.state()[k].value;
        assignments.push_back({value, values_for(state_key(part, k), value)});
      }
      const ordered_json& description = json.at("parts").at(part.name);
      const bool updated = description.at("updated").get<bool>();
      if (description.contains("columns")) {
        states.emplace_back([network = &part.network,
                             columns = TableColumns::from_json(description.at("columns"))] {
          network->set_columns(columns);
        });
      }
      if (const int64_t rows = description.value("rows", int64_t{0})) {
        if (rows < 0) throw DataError("[loop] " + path + ": it has a negative number of rows");
        std::vector<Tensor> values;
        for (const auto& [name, row] : part.network.row_state_shapes()) {
          const TensorSpec spec{batch_shape(rows, row), DType::f32, nullptr};
          const Tensor like = Tensor::view(nullptr, spec, nullptr);
          values.push_back(values_for(row_key(part, name), like));
        }
        states.emplace_back([network = &part.network, rows, values] {
          network->make_row_states(rows);
          for (size_t k = 0; k < values.size(); ++k) {
            network->row_states()[k].value.copy_from(values[k]);
          }
        });
      }
      const SolverArrays solver = arrays_of(part);
      for (const auto& [name, arrays] : solver.arrays) {
        std::vector<Tensor> made;
        for (size_t p = 0; updated && p < parameters.size(); ++p) {
          const Tensor& value = parameters[p].value;
          made.push_back(values_for(solver_key(part, p, name), value).to(value.device()));
        }
        states.emplace_back([to = arrays, made] { *to = made; });
      }
      if (!solver.updates) continue;
      states.emplace_back([to = solver.updates,
                           updates = description.at("updates").get<int64_t>()] { *to = updates; });
    }
  } catch (const nlohmann::json::exception&) {
    throw DataError("[loop] " + path + ": its position has a missing or invalid field");
  }
  const std::string numerics =
      fingerprint_difference(numerics_fingerprint(parts[0].network.device()), fingerprint);
  if (!numerics.empty() && !allow_other_numerics) {
    throw InvalidArgument("[loop] " + path + " was computed with other numerics: " + numerics,
                          "the bits would differ from an uninterrupted loop; set "
                          "allow_other_numerics to continue anyway");
  }
  for (const Assignment& assignment : assignments) assignment.to.copy_from(assignment.from);
  for (const auto& set : states) set();
  return position;
}

}  // namespace lockstep
