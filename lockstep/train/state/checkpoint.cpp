#include "lockstep/train/state/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/engine/formats/safetensors.h"
#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/optimizer/averaged_solver.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/state/identity.h"
#include "lockstep/train/state/state_digest.h"

namespace lockstep {
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kSuffix = ".safetensors";
constexpr const char* kFormat = "1";

// The iteration in a checkpoint's file name; -1 for other files.
int64_t iteration_of(const std::string& name) {
  const std::string prefix = kPrefix, suffix = kSuffix;
  if (name.size() <= prefix.size() + suffix.size() || name.rfind(prefix, 0) != 0 ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return -1;
  }
  int64_t number = 0;
  for (size_t i = prefix.size(); i < name.size() - suffix.size(); ++i) {
    if (name[i] < '0' || name[i] > '9' || number > (int64_t{1} << 50)) return -1;
    number = 10 * number + (name[i] - '0');
  }
  return number;
}

std::vector<std::pair<int64_t, std::string>> newest_first(FileSystem& files,
                                                          const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  if (!files.is_folder(folder)) return found;
  for (const auto& name : files.list(folder)) {
    const int64_t iteration = iteration_of(name);
    if (iteration >= 0) found.emplace_back(iteration, join_path(folder, name));
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void sort_by_name(std::vector<NamedTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
}

void add_best(std::vector<NamedTensor>& all, const Network& network, const BestNetwork& best) {
  for (size_t i = 0; i < best.parameters.size(); ++i) {
    all.push_back({"best/learnable/" + network.parameters()[i].name, best.parameters[i]});
  }
  for (size_t i = 0; i < best.state.size(); ++i) {
    all.push_back({"best/state/" + network.state()[i].name, best.state[i]});
  }
}

nlohmann::ordered_json json_of(const ValidationRecord& v) {
  auto metrics = nlohmann::ordered_json::array();  // an array keeps the order
  for (const auto& m : v.metrics) metrics.push_back({{"name", m.name}, {"value", m.value}});
  return {{"iteration", v.iteration},
          {"epoch", v.epoch},
          {"loss", v.loss},
          {"accuracy", v.accuracy},
          {"observations", v.observations},
          {"seconds", v.seconds},
          {"metrics", metrics}};
}

ValidationRecord validation_from(const nlohmann::json& j) {
  const auto number = [](const nlohmann::json& value) {
    return value.is_null() ? std::nan("") : value.get<double>();
  };
  ValidationRecord v{j.at("iteration").get<int64_t>(),
                     j.at("epoch").get<int64_t>(),
                     number(j.at("loss")),
                     number(j.at("accuracy")),
                     j.at("observations").get<int64_t>(),
                     number(j.at("seconds")),
                     {}};
  for (const auto& m : j.value("metrics", nlohmann::json::array())) {
    v.metrics.push_back({m.at("name").get<std::string>(), number(m.at("value"))});
  }
  return v;
}

constexpr const char* kKind = "checkpoint";

CheckedFile load(FileSystem& files, const std::string& path) {
  return read_checked(files, path, kKind);
}

// Describes a difference in data in terms of files and labels instead of digests. Returns "" if the
// identities differ in anything else.
std::string data_difference(const nlohmann::ordered_json& here,
                            const nlohmann::ordered_json& there) {
  const std::pair<const char*, const char*> parts[] = {
      {"data", "the training data"},
      {"validation_data", "the validation data"},
      {"targets", "the targets of the training images"},
      {"validation_targets", "the targets of the validation images"}};
  // Other differences have priority, because they may cause different data (validation_fraction).
  for (const auto& item : here.items()) {
    const std::string& key = item.key();
    const bool data = std::any_of(std::begin(parts), std::end(parts),
                                  [&](const auto& part) { return part.first == key; });
    // The lengths of a schedule also depend on the number of images.
    if (data || key == "training.schedule_iterations") continue;
    if (!there.contains(key) || there[key] != item.value()) return {};
  }
  for (const auto& [key, what] : parts) {
    if (here.value(key, "") == there.value(key, "")) continue;
    return std::string(what) +
           " differ from the run's: files were added, removed, renamed or relabeled, or their "
           "contents were changed";
  }
  return {};
}

// Throws InvalidArgument if a checkpoint belongs to another training than `identity`.
void check_identity(const nlohmann::ordered_json& identity, const nlohmann::ordered_json& there,
                    const CheckpointChoice& choice, const std::string& path) {
  const auto refuse = [&](const std::string& different, const std::string& hint) {
    throw InvalidArgument("[checkpoint] " + path + " belongs to another training: " + different,
                          hint);
  };
  const auto version_of = [](const nlohmann::ordered_json& one) {
    return one.contains("version") ? one["version"] : nlohmann::ordered_json(1);
  };
  const nlohmann::ordered_json version = version_of(there);
  if (version != version_of(identity)) {
    throw InvalidArgument("[checkpoint] " + path + " has an identity of version " + version.dump() +
                              ", but this program writes version " +
                              std::to_string(identity_version),
                          "continue with the version of lockstep that wrote it");
  }
  if (const auto schedule = schedule_difference(identity, there)) {
    refuse(schedule->what, schedule->hint);
  }
  std::string data = data_difference(identity, there);
  if (!data.empty()) {
    const std::string changes = choice.data_changes ? choice.data_changes() : "";
    if (!changes.empty()) data = "the data differ from the run's: " + changes;
    refuse(data, "restore the data, or train into another folder");
  }
  const std::string different = first_difference(identity, there, "");
  if (different.empty()) return;
  refuse(different, "resume with the same job, or train into another folder");
}

void copy_into(const Tensor& from, const Tensor& to, const std::string& name,
               const std::string& path) {
  if (!(from.shape() == to.shape()) || from.dtype() != to.dtype()) {
    throw DataError("[checkpoint] " + path + ": " + name + " is " + from.spec().to_string() +
                    ", but must be " + to.spec().to_string());
  }
  to.copy_from(from);
}

// Renames a damaged checkpoint, so that it is not tried again and does not count as kept.
void set_aside(FileSystem& files, const std::string& path, const std::string& what,
               const std::function<void(const std::string&)>& notice) {
  files.rename(path, path + ".damaged");
  notice(what + "; it was renamed to .damaged, and an earlier checkpoint is used if there is one");
}

}  // namespace

std::string first_difference(const nlohmann::ordered_json& here,
                             const nlohmann::ordered_json& there, const std::string& path) {
  if (here == there) return {};
  if (here.is_object() && there.is_object()) {
    const auto value = [](const nlohmann::ordered_json& object, const std::string& key) {
      return object.contains(key) ? object[key] : nlohmann::ordered_json();
    };
    for (const auto* one : {&here, &there}) {
      for (const auto& [key, unused] : one->items()) {
        const std::string name = path.empty() ? key : path + "." + key;
        const std::string inner = first_difference(value(here, key), value(there, key), name);
        if (!inner.empty()) return inner;
      }
    }
    return {};  // only the order of keys
  }
  if (here.is_array() && there.is_array() && here.size() == there.size()) {
    for (size_t i = 0; i < here.size(); ++i) {
      const auto inner =
          first_difference(here[i], there[i], path + "[" + std::to_string(i + 1) + "]");
      if (!inner.empty()) return inner;
    }
    return {};
  }
  const auto shown = [&](const nlohmann::ordered_json& value) -> std::string {
    if (!value.is_null()) return value.dump().substr(0, 120);
    return path.find('.') == std::string::npos ? "nothing" : "the default";
  };
  return path + ": " + shown(here) + " here, " + shown(there) + " there";
}

std::vector<NamedTensor> training_tensors(const Network& network, const Solver& solver) {
  std::vector<NamedTensor> all;
  const auto names = solver.state_names();
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    const auto& l = network.parameters()[p];
    all.push_back({"learnable/" + l.name, l.value});
    const auto arrays = solver.state(p);
    for (size_t k = 0; k < arrays.size(); ++k) {
      all.push_back({"solver/" + l.name + "." + names[k], arrays[k]});
    }
  }
  for (const auto& s : network.state()) all.push_back({"state/" + s.name, s.value});
  for (const auto& s : network.row_states()) all.push_back({"rows/" + s.name, s.value});
  return all;
}

BestNetwork best_of(const Network& network, int64_t iteration, double loss) {
  BestNetwork best{iteration, loss, {}, {}};
  for (const auto& l : network.parameters()) best.parameters.push_back(l.value.clone());
  for (const auto& s : network.state()) best.state.push_back(s.value.clone());
  return best;
}

void set_values(Network& network, const BestNetwork& best) {
  for (size_t i = 0; i < best.parameters.size(); ++i) {
    const Tensor& to = network.parameters()[i].value;
    to.copy_from(best.parameters[i]);
  }
  for (size_t i = 0; i < best.state.size(); ++i) {
    const Tensor& to = network.state()[i].value;
    to.copy_from(best.state[i]);
  }
  network.packed().pack_all();
}

std::string checkpoint_checksum(const std::vector<NamedTensor>& tensors,
                                const std::string& position) {
  Digester digester;
  digester.add(position);
  for (const auto& t : tensors) {
    digester.add(t.name);
    digester.add(t.tensor.spec().plain().to_string());
    const Tensor host = t.tensor.to({});
    digester.bytes(host.raw(), host.bytes());
  }
  return digester.finish().to_string();
}

std::vector<std::byte> write_checked(std::vector<NamedTensor> tensors, const std::string& kind,
                                     const nlohmann::ordered_json& position) {
  sort_by_name(tensors);
  const std::string text = position.dump();
  return write_safetensors(tensors, {{"lockstep." + kind, kFormat},
                                     {"lockstep.position", text},
                                     {"lockstep.checksum", checkpoint_checksum(tensors, text)}});
}

CheckedFile read_checked(FileSystem& files, const std::string& path, const std::string& kind) {
  const std::string where = "[" + kind + "] " + path + ": ";
  CheckedFile checked{read_safetensors(files.read(path), path), {}};
  const auto text = [&](const std::string& key) {
    const auto found = checked.file.metadata.find(key);
    if (found == checked.file.metadata.end()) throw DataError(where + "it has no `" + key + "`");
    return found->second;
  };
  const std::string format = text("lockstep." + kind);
  if (format != kFormat) {
    throw DataError(where + "it has format " + format + ", but this program reads only format " +
                    kFormat);
  }
  auto tensors = checked.file.tensors;
  sort_by_name(tensors);
  if (checkpoint_checksum(tensors, text("lockstep.position")) != text("lockstep.checksum")) {
    throw DataError(where + "it is damaged: the checksum differs");
  }
  try {
    checked.position = parse_json<nlohmann::ordered_json>(text("lockstep.position"));
  } catch (const JsonError& error) {
    throw DataError(where + "it is damaged: its position: " + error.what());
  }
  return checked;
}

bool holds_checkpoints(FileSystem& files, const std::string& folder) {
  return !newest_first(files, folder).empty();
}

std::vector<std::string> checkpoints_in(FileSystem& files, const std::string& folder) {
  std::vector<std::string> paths;
  for (auto& [iteration, path] : newest_first(files, folder)) paths.push_back(std::move(path));
  return paths;
}

bool is_checkpoint(const SafetensorsFile& file) {
  return file.metadata.contains("lockstep.checkpoint");
}

std::vector<NamedTensor> checkpoint_values(FileSystem& files, const std::string& path,
                                           TableColumns* columns, bool* averaged) {
  std::vector<NamedTensor> values;
  CheckedFile loaded = load(files, path);
  if (columns != nullptr && loaded.position.contains("columns")) {
    *columns = TableColumns::from_json(loaded.position["columns"]);
  }
  std::map<std::string, Tensor> averages;  // by parameter
  const std::string solver = "solver/", average = std::string(".") + kAverageState;
  for (NamedTensor& t : loaded.file.tensors) {
    for (const std::string kind : {"learnable/", "state/"}) {
      if (t.name.starts_with(kind)) values.push_back({t.name.substr(kind.size()), t.tensor});
    }
    if (t.name.starts_with(solver) && t.name.ends_with(average)) {
      const size_t length = t.name.size() - solver.size() - average.size();
      averages.emplace(t.name.substr(solver.size(), length), t.tensor);
    }
  }
  if (averaged == nullptr) return values;
  *averaged = !averages.empty();
  for (NamedTensor& value : values) {
    if (const auto found = averages.find(value.name); found != averages.end()) {
      value.tensor = found->second;
    }
  }
  return values;
}

std::string write_checkpoint(FileSystem& files, const std::string& folder, const Network& network,
                             const Solver& solver, const TrainingPosition& position, int64_t keep) {
  nlohmann::ordered_json json;
  json["iteration"] = position.iteration;
  json["epoch"] = position.epoch;
  json["batch"] = position.batch;
  json["digest"] = position.digest.to_string();
  json["chain"] = position.chain.to_string();
  json["validations"] = nlohmann::ordered_json::array();
  for (const auto& v : position.validations) json["validations"].push_back(json_of(v));
  if (position.best) {
    json["best"] = {{"iteration", position.best->iteration}, {"loss", position.best->loss}};
  }
  json["identity"] = position.identity;
  if (!network.columns().empty()) json["columns"] = network.columns().to_json();
  for (const auto& e : numerics_fingerprint(network.device()))
    json["fingerprint"][e.name] = e.value;

  auto tensors = training_tensors(network, solver);
  if (position.best) add_best(tensors, network, *position.best);
  const auto bytes = write_checked(std::move(tensors), kKind, json);
  make_folders(files, folder);
  const std::string path =
      join_path(folder, fmt::format("{}{:08}{}", kPrefix, position.iteration, kSuffix));
  write_atomically(files, path, bytes);
  const auto all = newest_first(files, folder);
  for (size_t i = static_cast<size_t>(std::max<int64_t>(keep, 1)); i < all.size(); ++i) {
    files.remove(all[i].second);
  }
  return path;
}

std::optional<TrainingPosition> resume_from_checkpoint(
    FileSystem& files, const std::string& folder, Network& network, Solver& solver,
    const nlohmann::ordered_json& identity, bool allow_other_numerics,
    const std::function<void(const std::string&)>& notice, const CheckpointChoice& choice) {
  const auto pass_over = [&](const std::string& path, const std::string& what) {
    if (choice.only_read) {
      notice(what + "; an earlier checkpoint is used if there is one");
    } else {
      set_aside(files, path, what, notice);
    }
  };
  for (const auto& [iteration, path] : newest_first(files, folder)) {
    if (choice.before > 0 && iteration >= choice.before) continue;
    CheckedFile loaded;
    TrainingPosition position;
    std::vector<FingerprintEntry> fingerprint;
    try {
      loaded = load(files, path);
      const auto& j = loaded.position;
      position.iteration = j.at("iteration").get<int64_t>();
      position.epoch = j.at("epoch").get<int64_t>();
      position.batch = j.at("batch").get<int64_t>();
      position.digest = Digest::parse(j.at("digest").get<std::string>());
      position.chain = Digest::parse(j.at("chain").get<std::string>());
      for (const auto& v : j.at("validations")) position.validations.push_back(validation_from(v));
      if (j.contains("best")) {
        // Allocates memory of the right sizes for the checkpoint's values.
        position.best = best_of(network, j.at("best").at("iteration").get<int64_t>(),
                                j.at("best").at("loss").get<double>());
      }
      position.identity = j.at("identity");
      for (const auto& [name, value] : j.at("fingerprint").items()) {
        fingerprint.push_back({name, value.get<std::string>()});
      }
    } catch (const DataError& e) {
      pass_over(path, e.what());
      continue;
    } catch (const nlohmann::json::exception&) {
      pass_over(path, "[checkpoint] " + path + ": its position has a missing or invalid field");
      continue;
    } catch (const InvalidArgument& e) {
      pass_over(path, "[checkpoint] " + path + ": " + e.what());
      continue;
    }
    check_identity(identity, position.identity, choice, path);
    const std::string numerics =
        fingerprint_difference(numerics_fingerprint(network.device()), fingerprint);
    if (!numerics.empty() && !allow_other_numerics) {
      throw InvalidArgument(
          "[checkpoint] " + path + " was computed with other numerics: " + numerics,
          "the bits would differ from an uninterrupted run; set allow_other_numerics = true to "
          "continue anyway");
    }
    auto tensors = training_tensors(network, solver);
    if (position.best) add_best(tensors, network, *position.best);
    for (const auto& t : tensors) {
      copy_into(loaded.file.at(t.name, path), t.tensor, t.name, path);
    }
    if (state_digest(network, solver, position.iteration) != position.digest) {
      throw DataError("[checkpoint] " + path + ": its contents do not match its digest");
    }
    return position;
  }
  return std::nullopt;
}

}  // namespace lockstep
