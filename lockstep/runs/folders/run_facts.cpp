#include "lockstep/runs/folders/run_facts.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/numeric/random_hex.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr const char* facts_format = "1";
constexpr const char* notes_format = "1";

std::string dumped(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

// The object in a file of the format; null if there is none.
ordered_json object_in(FileSystem& files, const std::string& path, const char* key,
                       const char* format) {
  try {
    if (!files.exists(path) || files.is_folder(path)) return {};
    ordered_json read = parse_json_or_discard<ordered_json>(read_text(files, path));
    if (!read.is_object() || read.value(key, std::string()) != format) return {};
    return read;
  } catch (const ordered_json::exception&) {
    return {};
  } catch (const FileError&) {
    return {};
  }
}

// The fields that are texts and numbers, by name.
template <class Facts, class Visit>
void visit_fields(Facts& f, const Visit& visit) {
  visit("id", f.id);
  visit("created", f.created);
  visit("address", f.address);
  visit("host", f.host);
  visit("version", f.version);
  visit("device", f.device);
  visit("threads", f.threads);
  visit("workers", f.workers);
  visit("iterations", f.iterations);
  visit("iterations_per_epoch", f.iterations_per_epoch);
  visit("first_iteration", f.first_iteration);
  visit("observations", f.observations);
  visit("validation_observations", f.validation_observations);
  visit("seconds", f.seconds);
  visit("data", f.data);
  visit("sweep", f.sweep);
  visit("trial", f.trial);
}

ordered_json json_of(const RunNotes& notes) {
  return {{"lockstep.notes", notes_format},
          {"tags", notes.tags},
          {"note", notes.note},
          {"archived", notes.archived}};
}

RunNotes notes_of(const ordered_json& json) {
  try {
    if (!json.is_object()) return {};
    return {json.at("tags").get<std::vector<std::string>>(), json.at("note").get<std::string>(),
            json.at("archived").get<bool>()};
  } catch (const ordered_json::exception&) {
    return {};
  }
}

}  // namespace

std::string make_run_id() { return random_hex(4); }

ordered_json to_json(const RunFacts& f) {
  ordered_json json = ordered_json::object();
  visit_fields(f, [&](const char* name, const auto& field) { json[name] = field; });
  ordered_json variables = ordered_json::object(), fingerprint = ordered_json::object(),
               scores = ordered_json::object();
  for (const auto& [name, value] : f.variables) {
    variables[name] = parse_json_or_discard<ordered_json>(value);
  }
  for (const auto& [name, value] : f.fingerprint) fingerprint[name] = value;
  for (const RunScore& score : f.scores) scores[score.name] = score.value;
  json["variables"] = variables;
  json["given"] = f.given;
  json["fingerprint"] = fingerprint;
  json["scores"] = scores;
  return json;
}

RunFacts run_facts_of(const ordered_json& json) {
  RunFacts f;
  visit_fields(f, [&](const char* name, auto& field) {
    if (json.contains(name)) json.at(name).get_to(field);
  });
  const ordered_json none = ordered_json::object();
  const auto values = [&](const char* name) -> const ordered_json& {
    return json.contains(name) ? json.at(name) : none;
  };
  for (const auto& [name, value] : values("variables").items()) {
    if (value.is_primitive()) f.variables.emplace_back(name, dumped(value, -1));
  }
  if (json.contains("given")) json.at("given").get_to(f.given);
  for (const auto& [name, value] : values("fingerprint").items()) {
    f.fingerprint.emplace_back(name, value.get<std::string>());
  }
  for (const auto& [name, value] : values("scores").items()) {
    if (value.is_number()) f.scores.push_back({name, value.get<double>()});
  }
  return f;
}

RunFacts read_run_facts(FileSystem& files, const std::string& folder) {
  const ordered_json json =
      object_in(files, join_path(folder, run_facts_name), "lockstep.run", facts_format);
  try {
    return json.is_object() ? run_facts_of(json) : RunFacts();
  } catch (const ordered_json::exception&) {
    return {};
  }
}

void write_run_facts(FileSystem& files, const std::string& folder, const RunFacts& f) {
  ordered_json json{{"lockstep.run", facts_format}};
  json.update(to_json(f));
  write_atomically(files, join_path(folder, run_facts_name), dumped(json, 2) + "\n");
}

RunNotes read_run_notes(FileSystem& files, const std::string& folder) {
  return notes_of(
      object_in(files, join_path(folder, run_notes_name), "lockstep.notes", notes_format));
}

void write_run_notes(FileSystem& files, const std::string& folder, const RunNotes& notes) {
  write_atomically(files, join_path(folder, run_notes_name), dumped(json_of(notes), 2) + "\n");
}

std::string to_text(const RunNotes& notes) { return dumped(json_of(notes), -1); }

RunNotes run_notes_of(const std::string& text) {
  return notes_of(parse_json_or_discard<ordered_json>(text));
}

}  // namespace lockstep
