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
#include "lockstep/report/pages/run_options.h"
#include "lockstep/runs/folders/run_facts.h"
#include "lockstep/runs/folders/run_folder.h"
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

// The columns of a row of Network::summary() after name, type and inputs.
std::vector<std::string> words_of(const std::string& row) {
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

std::string options_of(const ordered_json& job, const std::string& layer) {
  for (const ordered_json& one : job["network"].value("layers", ordered_json::array())) {
    if (one.is_object() && one.value("name", ordered_json()) == layer) return layer_options(one);
  }
  return "";
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
    const std::vector<std::string> columns = words_of(row.substr(rest));
    layers.push_back({{"name", name},
                      {"type", type},
                      {"inputs", node->inputs},
                      {"options", options_of(job, name)},
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
  for (const char* script : {"dygraph.min.js", "base.js", "curves.js", "log.js", "curve_group.js",
                             "charts.js", "report.js", "sweep.js", "report_start.js"}) {
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
  const RunFacts f = read_run_facts(local_files(), folder);
  if (f.iterations > 0) {
    data["start"] = {{"iterations", f.iterations},
                     {"iterations_per_epoch", f.iterations_per_epoch},
                     {"first_iteration", f.first_iteration},
                     {"observations", f.observations},
                     {"validation_observations", f.validation_observations},
                     {"device", f.device},
                     {"threads", f.threads},
                     {"workers", f.workers}};
  }
  for (const RunScore& score : f.scores) data["scores"][score.name] = score.value;
  for (const char* part : {"confusion", "predictions", "profile"}) {
    ordered_json json = json_of(folder, (std::string(part) + ".json").c_str(), notes);
    if (!json.is_null()) data[part] = std::move(json);
  }
  if (job.is_object()) {
    data["options"] = option_tables(job, f);
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
