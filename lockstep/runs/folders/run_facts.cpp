#include "lockstep/runs/folders/run_facts.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/error.h"

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
    ordered_json read = ordered_json::parse(read_text(files, path), nullptr, false);
    if (!read.is_object() || read.value(key, std::string()) != format) return {};
    return read;
  } catch (const ordered_json::exception&) {
    return {};
  } catch (const FileError&) {
    return {};
  }
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

std::string make_run_id() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "";
  return name;
}

RunFacts read_run_facts(FileSystem& files, const std::string& folder) {
  const ordered_json json =
      object_in(files, join_path(folder, run_facts_name), "lockstep.run", facts_format);
  RunFacts f;
  if (!json.is_object()) return f;
  try {
    f.id = json.at("id").get<std::string>();
    f.created = json.at("created").get<std::string>();
    f.host = json.at("host").get<std::string>();
    f.version = json.at("version").get<std::string>();
    f.device = json.at("device").get<std::string>();
    f.threads = json.at("threads").get<int>();
    f.workers = json.at("workers").get<int>();
    f.iterations = json.at("iterations").get<int64_t>();
    f.iterations_per_epoch = json.at("iterations_per_epoch").get<int64_t>();
    f.seconds = json.at("seconds").get<double>();
    f.data = json.at("data").get<std::string>();
    f.sweep = json.at("sweep").get<std::string>();
    f.trial = json.at("trial").get<int64_t>();
    for (const auto& [name, value] : json.at("variables").items()) {
      if (value.is_primitive()) f.variables.emplace_back(name, dumped(value, -1));
    }
    for (const auto& [name, value] : json.at("fingerprint").items()) {
      f.fingerprint.emplace_back(name, value.get<std::string>());
    }
    for (const auto& [name, value] : json.at("scores").items()) {
      if (value.is_number()) f.scores.push_back({name, value.get<double>()});
    }
  } catch (const ordered_json::exception&) {
    return {};
  }
  return f;
}

void write_run_facts(FileSystem& files, const std::string& folder, const RunFacts& f) {
  ordered_json variables = ordered_json::object(), fingerprint = ordered_json::object(),
               scores = ordered_json::object();
  for (const auto& [name, value] : f.variables)
    variables[name] = ordered_json::parse(value, nullptr, false);
  for (const auto& [name, value] : f.fingerprint) fingerprint[name] = value;
  for (const RunScore& score : f.scores) scores[score.name] = score.value;
  const ordered_json json{{"lockstep.run", facts_format},
                          {"id", f.id},
                          {"created", f.created},
                          {"host", f.host},
                          {"version", f.version},
                          {"device", f.device},
                          {"threads", f.threads},
                          {"workers", f.workers},
                          {"iterations", f.iterations},
                          {"iterations_per_epoch", f.iterations_per_epoch},
                          {"seconds", f.seconds},
                          {"data", f.data},
                          {"sweep", f.sweep},
                          {"trial", f.trial},
                          {"variables", variables},
                          {"fingerprint", fingerprint},
                          {"scores", scores}};
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
  return notes_of(ordered_json::parse(text, nullptr, false));
}

}  // namespace lockstep
