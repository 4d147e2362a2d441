// Views of stored runs: show, compare, export.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/lockstep/command.h"
#include "apps/lockstep/runs/runs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/text.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/folders/growing_lines.h"
#include "lockstep/runs/store/run_filter.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/s3_files.h"
#include "lockstep/train/state/receipt.h"

namespace lockstep::command {
namespace {

using nlohmann::ordered_json;

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

ordered_json json_of(const std::vector<RunValue>& values) {
  if (values.empty()) return nullptr;
  const auto one = [](const RunValue& value) {
    const double* number = std::get_if<double>(&value);
    return number != nullptr ? ordered_json(*number) : ordered_json(std::get<std::string>(value));
  };
  if (values.size() == 1) return one(values.front());
  ordered_json list = ordered_json::array();
  for (const RunValue& value : values) list.push_back(one(value));
  return list;
}

// What follows the last line of a run's receipt.
void note_rest_of_receipt(const std::string& folder) {
  const std::string path = join_path(folder, "receipt.jsonl");
  if (!local_files().exists(path)) return;
  const std::string note = receipt_rest_note(read_text(local_files(), path), path);
  if (!note.empty()) std::fprintf(stderr, "note: %s\n", printable(note).c_str());
}

}  // namespace

size_t columns_in(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; }));
}

std::string short_text(const std::vector<RunValue>& values) {
  if (values.size() == 1 && std::holds_alternative<double>(values.front())) {
    const double number = std::get<double>(values.front());
    return number == std::round(number) && std::abs(number) < 1e15 ? fmt::format("{:.0f}", number)
                                                                   : fmt::format("{:.5g}", number);
  }
  return text_of(values);
}

void print_runs(const std::vector<StoredRun>& runs, const std::vector<std::string>& fields,
                const RunsArguments& a) {
  if (a.json) {
    ordered_json list = ordered_json::array();
    for (const StoredRun& run : runs) {
      ordered_json object{{"number", run.number}, {"folder", run.folder}};
      for (const std::string& field : fields) object[field] = json_of(values_of(run, field));
      list.push_back(std::move(object));
    }
    print(list.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    return;
  }
  TextTable table{fields, {}};
  for (const StoredRun& run : runs) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& field : fields) {
      const auto values = values_of(run, field);
      row.push_back(a.csv ? text_of(values) : short_text(values));
    }
  }
  print(a.csv ? csv(table) : aligned(table));
}

std::string aligned(const TextTable& table) {
  std::vector<size_t> widths;
  std::vector<std::vector<std::string>> lines{table.head};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  for (auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) {
      line[i] = line[i].empty() ? "-" : printable(line[i]);
      widths[i] = std::max(widths[i], columns_in(line[i]));
    }
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (size_t i = 0; i < line.size(); ++i) {
      row += line[i] + std::string(widths[i] - columns_in(line[i]) + 2, ' ');
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

std::string csv(const TextTable& table) {
  std::string text;
  std::vector<std::vector<std::string>> lines{table.head};
  lines.insert(lines.end(), table.rows.begin(), table.rows.end());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) text += (i > 0 ? "," : "") + csv_cell(line[i]);
    text += "\r\n";
  }
  return text;
}

int show_runs(const RunsArguments& a) {
  RunStore store = open_store();
  ordered_json list = ordered_json::array();
  for (const StoredRun& run : chosen_runs(store, a)) {
    ordered_json json = parse_json<ordered_json>(to_text(run));
    json["number"] = run.number;
    json["tags"] = run.notes.tags;
    json["note"] = run.notes.note;
    json["archived"] = run.notes.archived;
    for (auto& [name, value] : json["options"].items()) {
      value = parse_json_or_discard<ordered_json>(value.get<std::string>());
    }
    const ordered_json facts = json.at("facts");
    json.erase("facts");
    for (const auto& [name, value] : facts.items()) json[name] = value;
    auto metrics = ordered_json::object();
    for (const MetricSummary& m : run.metrics) {
      metrics[m.name] = {{"last", m.last},
                         {"last_iteration", m.last_iteration},
                         {"best", m.best},
                         {"best_iteration", m.best_iteration}};
    }
    json["metrics"] = metrics;
    if (a.json) {
      note_rest_of_receipt(run.folder);
      list.push_back(std::move(json));
      continue;
    }
    std::vector<std::pair<std::string, std::string>> rows;
    for (const char* field :
         {"number",  "run",     "name",    "state",   "reason",    "folder", "tag",     "note",
          "created", "ended",   "seconds", "epoch",   "iteration", "host",   "version", "device",
          "threads", "workers", "data",    "receipt", "sweep",     "trial"}) {
      const std::string text = short_text(values_of(run, field));
      if (!text.empty()) rows.emplace_back(field, text);
    }
    for (const MetricSummary& m : run.metrics) {
      rows.emplace_back(m.name, fmt::format("{:.5g}, best {:.5g} after iteration {}", m.last,
                                            m.best, format_count(m.best_iteration)));
    }
    for (const auto& [name, value] : run.facts.variables) {
      rows.emplace_back("variables." + name, value);
    }
    for (const auto& [name, value] : run.options) rows.emplace_back(name, value);
    for (const Artifact& file : run.artifacts) {
      rows.emplace_back("file " + file.name, format_count(file.bytes) + " bytes");
    }
    print_table(rows);
    note_rest_of_receipt(run.folder);
  }
  if (a.json) print(list.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  return 0;
}

int compare_stored_runs(const RunsArguments& a) {
  RunStore store = open_store();
  const std::vector<StoredRun> runs = chosen_runs(store, a);
  if (runs.size() < 2) {
    throw InvalidArgument("[runs] a comparison needs at least two runs",
                          "`lockstep runs list --all` shows the numbers");
  }
  std::vector<std::string> names{"data", "device", "version"};
  std::set<std::string> known;
  const auto add = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  for (const StoredRun& run : runs) {
    for (const auto& [name, unused] : run.facts.variables) add("variables." + name);
  }
  for (const StoredRun& run : runs) {
    for (const auto& [name, unused] : run.options) add(name);
  }
  std::vector<std::string> fields;
  for (const std::string& name : names) {
    const auto first = values_of(runs.front(), name);
    const bool differs = std::any_of(runs.begin() + 1, runs.end(), [&](const StoredRun& run) {
      return values_of(run, name) != first;
    });
    if (differs) fields.push_back(name);
  }
  for (const char* field : {"state", "epoch"}) fields.emplace_back(field);
  for (const StoredRun& run : runs) {
    for (const MetricSummary& m : run.metrics) {
      for (const std::string& field : {m.name, m.name + ".best"}) {
        if (std::find(fields.begin(), fields.end(), field) == fields.end()) fields.push_back(field);
      }
    }
  }
  if (a.json || a.csv) {
    if (a.csv) fields.insert(fields.begin(), "number");
    print_runs(runs, fields, a);
    return 0;
  }
  // A column for each run: there are more fields than runs.
  TextTable table{{"number"}, {}};
  for (const StoredRun& run : runs) table.head.push_back(std::to_string(run.number));
  for (const std::string& field : fields) {
    std::vector<std::string>& row = table.rows.emplace_back(1, field);
    for (const StoredRun& run : runs) row.push_back(short_text(values_of(run, field)));
  }
  print(aligned(table));
  return 0;
}

int export_runs(const RunsArguments& a) {
  RunStore store = open_store();
  const std::vector<StoredRun> runs = chosen_runs(store, a);
  TextTable table{{"run", "iteration", "epoch", "loss", "accuracy", "learning_rate", "elapsed",
                   "validation_loss", "validation_accuracy"},
                  {}};
  const size_t fixed = table.head.size();
  std::map<std::string, size_t> metric_columns;
  const auto cell = [](const nlohmann::json& line, const char* key) {
    const auto found = line.find(key);
    return found == line.end() || found->is_null() ? std::string() : found->dump();
  };
  for (const StoredRun& run : runs) {
    const std::string path = join_path(run.folder, "log.jsonl");
    const auto add_line = [&](std::string_view text) {
      const auto line = parse_json_or_discard<nlohmann::json>(text);
      if (!line.is_object() || line.contains("event") || line.contains("phase")) return;
      const bool validation = line.contains("validation_loss");
      if (!validation && !line.contains("loss")) return;
      const bool joins = validation && !table.rows.empty() &&
                         table.rows.back()[0] == std::to_string(run.number) &&
                         table.rows.back()[1] == cell(line, "iteration");
      if (!joins) {
        table.rows.emplace_back(fixed);
        table.rows.back()[0] = std::to_string(run.number);
        table.rows.back()[1] = cell(line, "iteration");
        table.rows.back()[2] = cell(line, "epoch");
      }
      std::vector<std::string>& row = table.rows.back();
      for (size_t i = validation ? 7 : 3; i < (validation ? fixed : 7); ++i) {
        row[i] = cell(line, table.head[i].c_str());
      }
      if (!validation || !line.contains("validation_metrics")) return;
      for (const auto& [name, value] : line["validation_metrics"].items()) {
        const auto [at, fresh] = metric_columns.try_emplace(name, table.head.size());
        if (fresh) table.head.push_back("validation_" + name);
        row.resize(std::max(row.size(), at->second + 1));
        row[at->second] = value.is_null() ? "" : value.dump();
      }
    };
    if (storage::is_address(path)) {
      const std::string text = read_text(storage::s3_files(), path);
      size_t begin = 0;
      for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', begin)) {
        add_line(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
      }
      continue;
    }
    if (!local_files().exists(path)) throw FileError("[runs] there is no " + path);
    GrowingLines lines;
    lines.follow(path, add_line);
    if (lines.overlong()) {
      std::fprintf(stderr, "note: %s\n", printable(overlong_note(path)).c_str());
    }
  }
  for (auto& row : table.rows) row.resize(table.head.size());
  if (a.out.empty()) {
    print(csv(table));
  } else {
    write_atomically(local_files(), a.out, csv(table));
  }
  return 0;
}

}  // namespace lockstep::command
