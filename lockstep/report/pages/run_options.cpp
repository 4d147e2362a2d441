#include "lockstep/report/pages/run_options.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/engine/nn/layer.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/store/stored_run.h"
#include "lockstep/train/options/solver_info.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

constexpr size_t kLongestValue = 200;

std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// "sgdm", 0.9, [-2,2] as text.
std::string value_text(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  // Variables are numbers in double precision.
  if (value.is_number_float()) {
    std::string text = dumped(value);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text;
  }
  return dumped(value);
}

std::string shortened(std::string text) {
  return text.size() > kLongestValue ? text.substr(0, kLongestValue) + "..." : text;
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

ordered_json default_of(const FieldInfo& field) {
  ordered_json value = parse_json_or_discard<ordered_json>(field.default_value);
  if (value.is_discarded()) value = field.default_value;
  return value;
}

// The default of an option, in a training with the job's solver.
ordered_json default_of(const FieldInfo& field, const ordered_json& table) {
  ordered_json value = default_of(field);
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

// Which of a run's options its user set.
class Given {
 public:
  explicit Given(const RunFacts& facts) : names_(facts.given.begin(), facts.given.end()) {}

  bool set(const std::string& name, bool differs) const {
    const bool known = !names_.empty() && !name.starts_with("data.");
    return known ? names_.contains(name) : differs;
  }

 private:
  const std::set<std::string> names_;
};

ordered_json variables_table(const RunFacts& facts) {
  ordered_json fields = ordered_json::array();
  for (const auto& [name, value] : facts.variables) {
    fields.push_back({{"name", name},
                      {"value", value_text(parse_json_or_discard<ordered_json>(value))},
                      {"default", "-"},
                      {"set", true},
                      {"help", "a variable of the job, or a parameter of its sweep"}});
  }
  return {{"name", "variables"}, {"fields", std::move(fields)}};
}

// Texts as numbers, so that the options of thousands of runs need little memory.
class Texts {
 public:
  int number(const std::string& text) {
    const auto [at, added] = numbers_.try_emplace(text, static_cast<int>(texts_.size()));
    if (added) texts_.push_back(&at->first);
    return at->second;
  }
  const std::string& text(int number) const { return *texts_[static_cast<size_t>(number)]; }
  int count() const { return static_cast<int>(texts_.size()); }

 private:
  std::map<std::string, int> numbers_;
  std::vector<const std::string*> texts_;
};

// What is compared of the runs.
struct Compared {
  using Values = std::vector<std::pair<int, int>>;  // by the number of the name, sorted
  // Of a name, in the runs so far.
  struct Seen {
    int value = -1, runs = 0;
    bool differs = false;
  };

  Texts names, values;
  std::vector<std::optional<Values>> runs;  // nothing for a folder without a job
  std::vector<Seen> seen;                   // by the number of the name
  int with_job = 0;
  std::set<int> set;

  void add(const std::string& folder);
  // The number of the value, or -1.
  static int value_of(const Values& run, int name);
};

void Compared::add(const std::string& folder) {
  ordered_json job;
  try {
    job = parse_json_or_discard<ordered_json>(
        read_text(local_files(), join_path(folder, "job.json")));
  } catch (const Error&) {  // it was removed, or cannot be read: shown without it
  }
  runs.emplace_back();
  if (!job.is_object()) return;
  Values& run = runs.back().emplace();
  const RunFacts facts = read_run_facts(local_files(), folder);
  const auto take = [&](const std::string& name, const std::string& json, bool is_set) {
    // Most values are numbers, which are their own text.
    std::string text = json.starts_with('"') || json.ends_with(".0")
                           ? value_text(parse_json_or_discard<ordered_json>(json))
                           : json;
    const int number = names.number(printable(name));
    run.emplace_back(number, values.number(printable(shortened(std::move(text)))));
    if (is_set) set.insert(number);
  };
  for (const auto& [name, value] : facts.variables) take("variables." + name, value, true);
  std::set<std::string> known(facts.given.begin(), facts.given.end());
  if (known.empty()) {
    for (const ordered_json& table : option_tables(job, facts)) {
      for (const ordered_json& field : table["fields"]) {
        if (!field["set"]) continue;
        known.insert(table["name"].get<std::string>() + "." + field["name"].get<std::string>());
      }
    }
  }
  for (const auto& [name, value] : options_of_job(std::move(job))) {
    // Data that differs was chosen by the user.
    take(name, value, known.contains(name) || name.starts_with("data."));
  }
  // Of equal names the first counts.
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(run.begin(), run.end(), by_name);
  const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
  run.erase(std::unique(run.begin(), run.end(), same_name), run.end());
  run.shrink_to_fit();
  ++with_job;
  seen.resize(static_cast<size_t>(names.count()));
  for (const auto& [name, value] : run) {
    Seen& of = seen[static_cast<size_t>(name)];
    if (of.runs++ == 0) of.value = value;
    of.differs = of.differs || of.value != value;
  }
}

int Compared::value_of(const Values& run, int name) {
  const auto at = std::lower_bound(run.begin(), run.end(), name, [](const auto& entry, int number) {
    return entry.first < number;
  });
  return at == run.end() || at->first != name ? -1 : at->second;
}

// The numbers of names whose values are not the same in all runs.
std::vector<int> differing_names(const Compared& compared) {
  std::vector<int> found;
  for (int name = 0; name < compared.names.count(); ++name) {
    const Compared::Seen& of = compared.seen[static_cast<size_t>(name)];
    if (of.differs || of.runs != compared.with_job) found.push_back(name);
  }
  return found;
}

}  // namespace

ordered_json option_tables(const ordered_json& job, const RunFacts& facts) {
  static const std::vector<JobTable> known = job_tables();
  const Given given(facts);
  ordered_json tables = ordered_json::array();
  if (!facts.variables.empty()) tables.push_back(variables_table(facts));
  for (const JobTable& table : known) {
    const auto found = job.find(table.name);
    if (table.name == "network" || found == job.end() || !found->is_object()) continue;
    ordered_json fields = ordered_json::array();
    for (const FieldInfo& field : table.fields) {
      const auto value = found->find(field.name);
      if (value == found->end()) continue;
      const ordered_json by_default = default_of(field, *found);
      fields.push_back(
          {{"name", field.name},
           {"value", value_text(*value)},
           {"default", value_text(by_default)},
           {"set", given.set(table.name + "." + field.name, !same_value(*value, by_default))},
           {"help", field.help}});
    }
    tables.push_back({{"name", table.name}, {"fields", std::move(fields)}});
  }
  return tables;
}

std::string layer_options(const ordered_json& layer) {
  const std::vector<LayerInfo>& registry = layer_registry();
  const auto info = std::find_if(registry.begin(), registry.end(), [&](const LayerInfo& one) {
    return layer.contains("type") && layer["type"] == one.type;
  });
  std::string text;
  for (const auto& item : layer.items()) {
    const std::string& name = item.key();
    const ordered_json& value = item.value();
    if (name == "name" || name == "type" || name == "inputs") continue;
    if (info != registry.end()) {
      const auto field = std::find_if(info->fields.begin(), info->fields.end(),
                                      [&](const FieldInfo& f) { return f.name == name; });
      if (field != info->fields.end() && same_value(value, default_of(*field))) continue;
    }
    const bool equal = value.is_array() && !value.empty() && value.front().is_primitive() &&
                       std::all_of(value.begin(), value.end(),
                                   [&](const ordered_json& v) { return v == value.front(); });
    const std::string shown = value_text(equal ? value.front() : value);
    text += (text.empty() ? "" : ", ") + name + " " + shortened(shown);
  }
  return printable(text);
}

ordered_json differing_options(const std::vector<std::string>& folders, size_t most) {
  Compared compared;
  for (const std::string& folder : folders) compared.add(folder);
  std::vector<int> order = differing_names(compared);
  const auto rank = [&](int number) {
    const std::string& name = compared.names.text(number);
    if (name.starts_with("variables.")) return 0;
    if (compared.set.contains(number)) return 1;
    return name.starts_with("network.") ? 3 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank(a) < rank(b); });
  const size_t left_out = order.size() - std::min(order.size(), most);
  order.resize(order.size() - left_out);
  const ordered_json none = ordered_json::array();
  ordered_json json{{"names", none}, {"set", none}, {"values", none}, {"left_out", left_out}};
  for (const int name : order) {
    json["names"].push_back(compared.names.text(name));
    json["set"].push_back(compared.set.contains(name));
  }
  for (const std::optional<Compared::Values>& run : compared.runs) {
    ordered_json row = ordered_json::array();
    for (const int name : order) {
      const int value = run ? Compared::value_of(*run, name) : -1;
      row.push_back(value < 0 ? ordered_json() : ordered_json(compared.values.text(value)));
    }
    json["values"].push_back(std::move(row));
  }
  return json;
}

}  // namespace lockstep
