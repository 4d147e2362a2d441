#include "lockstep/report/pages/run_page.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/report/pages/page_files.h"
#include "lockstep/report/pages/run_log.h"
#include "lockstep/runs/folders/run_facts.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/train/options/solver_info.h"
#include "lockstep/train/state/receipt.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

std::string page_text(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Reads a file of JSON. Null if there is none; a note if it is damaged.
ordered_json json_of(const std::string& folder, const char* name, ordered_json& notes) {
  const std::string path = join_path(folder, name);
  try {
    if (!local_files().exists(path)) return nullptr;
    ordered_json json = parse_json_or_discard<ordered_json>(read_text(local_files(), path));
    if (json.is_object()) return json;
    notes.push_back(std::string(name) + " is damaged and left out");
  } catch (const Error& e) {
    notes.push_back(e.what());
  }
  return nullptr;
}

// "sgdm", 0.9, [-2,2] as text.
std::string value_text(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : page_text(value);
}

// Whether a resolved value is the default, which may be written in a shorter form: 0 for [0, 0], []
// for a missing text.
bool same_value(const ordered_json& value, const ordered_json& by_default) {
  if (value.is_number() && by_default.is_number()) {
    return value.get<double>() == by_default.get<double>();
  }
  if (value.is_array() && by_default.is_array() && value.size() == by_default.size()) {
    return std::equal(value.begin(), value.end(), by_default.begin(), same_value);
  }
  if (value.is_array() && !value.empty() && !by_default.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const ordered_json& v) { return same_value(v, by_default); });
  }
  const auto nothing = [](const ordered_json& v) {
    return v.is_null() || ((v.is_array() || v.is_string()) && (v.empty() || v == ""));
  };
  return value == by_default || (nothing(value) && nothing(by_default));
}

// The default of a field, in a training with the job's solver.
ordered_json default_of(const FieldInfo& field, const ordered_json& table) {
  ordered_json value = parse_json_or_discard<ordered_json>(field.default_value);
  if (value.is_discarded()) value = field.default_value;
  const auto solver = table.find("solver");
  if (solver == table.end() || !solver->is_string()) return value;
  for (const SolverInfo& info : solver_registry()) {
    if (info.name != *solver) continue;
    if (field.name == "initial_learning_rate") value = info.initial_learning_rate;
    if (field.name == "squared_gradient_decay" && info.squared_gradient_decay > 0) {
      value = info.squared_gradient_decay;
    }
  }
  return value;
}

ordered_json options_of_job(const ordered_json& job) {
  static const std::vector<JobTable> known = job_tables();
  ordered_json tables = ordered_json::array();
  for (const JobTable& table : known) {
    const auto found = job.find(table.name);
    if (table.name == "network" || found == job.end() || !found->is_object()) continue;
    ordered_json fields = ordered_json::array();
    for (const FieldInfo& field : table.fields) {
      const auto value = found->find(field.name);
      if (value == found->end()) continue;
      const ordered_json by_default = default_of(field, *found);
      fields.push_back({{"name", field.name},
                        {"value", value_text(*value)},
                        {"default", value_text(by_default)},
                        {"differs", !same_value(*value, by_default)},
                        {"help", field.help}});
    }
    tables.push_back({{"name", table.name}, {"fields", std::move(fields)}});
  }
  return tables;
}

// The columns of a row of Network::summary() after name, type and inputs.
std::vector<std::string> columns_of(const std::string& row) {
  std::vector<std::string> columns;
  size_t at = 0;
  while ((at = row.find_first_not_of(' ', at)) != std::string::npos) {
    const size_t end = std::min(row.find("  ", at), row.size());
    columns.push_back(row.substr(at, end - at));
    at = end;
  }
  columns.resize(std::max<size_t>(columns.size(), 3));
  return columns;
}

ordered_json network_of_job(const ordered_json& job) {
  const Network network = Network::from_json(job.at("network"));
  const std::string summary = network.summary();
  ordered_json layers = ordered_json::array();
  std::string totals;
  size_t line = 0;
  for (size_t begin = 0, end; (end = summary.find('\n', begin)) != std::string::npos; ++line) {
    const std::string row = summary.substr(begin, end - begin);
    begin = end + 1;
    totals = row;
    const std::string name = row.substr(0, row.find(' '));
    const auto& nodes = network.layers();
    const auto node = std::find_if(nodes.begin(), nodes.end(),
                                   [&](const LayerNode& n) { return n.name == name; });
    if (line < 2 || node == nodes.end()) continue;
    const std::string type(node->layer->type());
    std::string inputs;
    for (const std::string& input : node->inputs) inputs += (inputs.empty() ? "" : ", ") + input;
    size_t rest = row.find(type, name.size()) + type.size();
    if (!inputs.empty()) rest = row.find(inputs, rest) + inputs.size();
    const std::vector<std::string> columns = columns_of(row.substr(rest));
    layers.push_back({{"name", name},
                      {"type", type},
                      {"inputs", node->inputs},
                      {"size", columns[0]},
                      {"parameters", columns[1]},
                      {"state", columns[2]}});
  }
  return {{"layers", std::move(layers)}, {"totals", totals}, {"loss", network.loss()}};
}

// The digest after the last iteration, from the end of the receipt; "" if there is none.
std::string last_digest(const std::string& folder, bool running, ordered_json& notes) {
  const std::string path = join_path(folder, "receipt.jsonl");
  if (!local_files().exists(path)) return {};
  std::string text;
  try {
    text = read_text(local_files(), path);
  } catch (const Error& e) {
    notes.push_back(printable(e.what()));
    return {};
  }
  // Of a run that writes, a line may be under way.
  if (const std::string note = receipt_rest_note(text, path); !note.empty() && !running) {
    notes.push_back(printable(note));
  }
  const size_t end = text.rfind('\n');
  text.resize(end == std::string::npos ? 0 : end);
  const size_t at = text.rfind(R"("digest":")");
  return at == std::string::npos ? "" : printable(text.substr(at + 10, 32));
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

std::string page_of(const ordered_json& data) {
  std::string page = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Lockstep report</title>
)";
  for (const char* style : {"dygraph.min.css", "style.css"}) {
    page += "<style>\n";
    page += page_file(style);
    page += "</style>\n";
  }
  page +=
      "</head>\n<body>\n<noscript>This report draws its charts with JavaScript.</noscript>\n"
      "<script type=\"application/json\" id=\"data\">";
  page += json_for_page(data) + "</script>\n";
  for (const char* script : {"dygraph.min.js", "base.js", "curves.js", "charts.js", "report.js",
                             "sweep.js", "report_start.js"}) {
    page += "<script>\n";
    page += page_file(script);
    page += "</script>\n";
  }
  return page + "</body>\n</html>\n";
}

// Removes the values of all keys "image", "input", "target" and "output" that hold pictures.
void remove_pictures(ordered_json& json) {
  if (json.is_array()) {
    for (ordered_json& item : json) remove_pictures(item);
  } else if (json.is_object()) {
    for (auto& [key, value] : json.items()) {
      if (value.is_string() &&
          (key == "image" || key == "input" || key == "target" || key == "output")) {
        value = nullptr;
      } else {
        remove_pictures(value);
      }
    }
  }
}

RunLog log_of(const std::string& folder) {
  RunLog log;
  log.follow(join_path(folder, "log.jsonl"), std::numeric_limits<int64_t>::max());
  return log;
}

}  // namespace

std::string json_for_page(const ordered_json& json) {
  std::string text = page_text(json);
  replace_all(text, "<", "\\u003c");
  return text;
}

ordered_json changed_options(const ordered_json& job) {
  ordered_json options = ordered_json::object();
  for (const ordered_json& table : options_of_job(job)) {
    for (const ordered_json& field : table["fields"]) {
      if (!field["differs"]) continue;
      options[table["name"].get<std::string>() + "." + field["name"].get<std::string>()] =
          field["value"];
    }
  }
  return options;
}

ordered_json run_data(const std::string& folder) {
  const RunState state = run_state(local_files(), folder);
  if (state.status == RunStatus::none) {
    throw InvalidArgument("[report] " + folder + " is not the folder of a run",
                          "name a folder that `lockstep train` wrote");
  }
  ordered_json notes = ordered_json::array();
  ordered_json data;
  const ordered_json job = json_of(folder, "job.json", notes);
  data["name"] = job.is_object() ? job.value("name", ordered_json("run")) : ordered_json("run");
  data["folder"] = printable(folder);
  data["state"] = {{"status", to_string(state.status)},
                   {"reason", printable(state.reason)},
                   {"time", printable(state.time)},
                   {"iteration", state.iteration}};
  if (const RunFacts f = read_run_facts(local_files(), folder); f.iterations > 0) {
    data["start"] = {{"iterations", f.iterations},
                     {"iterations_per_epoch", f.iterations_per_epoch},
                     {"first_iteration", f.first_iteration},
                     {"observations", f.observations},
                     {"validation_observations", f.validation_observations},
                     {"device", f.device},
                     {"threads", f.threads},
                     {"workers", f.workers}};
  }
  for (const char* part : {"confusion", "predictions", "profile"}) {
    ordered_json json = json_of(folder, (std::string(part) + ".json").c_str(), notes);
    if (!json.is_null()) data[part] = std::move(json);
  }
  if (job.is_object()) {
    data["options"] = options_of_job(job);
    try {
      data["network"] = network_of_job(job);
    } catch (const std::exception& e) {  // a job of another version, or with layers of the user's
      notes.push_back(std::string("the network is left out: ") + e.what());
    }
  }
  data["log"] = log_of(folder).columns();
  data["digest"] = last_digest(folder, state.status == RunStatus::running, notes);
  data["notes"] = std::move(notes);
  return data;
}

std::string report_page(ordered_json data) {
  if (data.contains("log")) data["log"].erase("mark");  // of this file, not of its contents
  std::string page = page_of(data);
  const auto note = [&](const char* text) { data["notes"].push_back(text); };
  if (page.size() < most_report_bytes) return page;
  note("The pictures are left out, because the report would be larger than 5 MiB.");
  remove_pictures(data["predictions"]);
  page = page_of(data);
  if (page.size() < most_report_bytes) return page;
  note("The confusion matrix is left out, because the report would be larger than 5 MiB.");
  data.erase("confusion");
  page = page_of(data);
  if (page.size() < most_report_bytes) return page;
  note("Further parts are left out, because the report would be larger than 5 MiB.");
  for (const char* part : {"predictions", "profile", "network"}) data.erase(part);
  data["log"]["events"] = ordered_json::array();
  return page_of(data);
}

std::string write_report(const std::string& folder) {
  std::string path = join_path(folder, report_name);
  write_atomically(local_files(), path, report_page(run_data(folder)));
  return path;
}

}  // namespace lockstep
