#include "lockstep/runs/jobs/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/suggest.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const std::vector<std::string> range_keys{"values",  "low",   "high", "scale",
                                          "integer", "steps", "when"};
constexpr const char* shapes =
    "a parameter is a list of values, { values = [...] } or { low = A, high = B }";

[[noreturn]] void refuse_parameter(const std::string& name, const std::string& problem,
                                   const std::string& hint = {}) {
  throw InvalidArgument("[sweep.parameters] " + name + ": " + problem, hint);
}

// Whether a table describes a parameter, and not a table of parameters.
bool is_description(const json& table) {
  return table.contains("values") || table.contains("low") || table.contains("high");
}

double finite_number(const std::string& name, const json& table, const char* key) {
  if (!table.contains(key)) refuse_parameter(name, std::string("`") + key + "` is missing", shapes);
  if (!table[key].is_number()) {
    refuse_parameter(name,
                     std::string("`") + key + "` must be a number, received " + table[key].dump());
  }
  return table[key].get<double>();
}

std::vector<std::string> texts_of(const std::string& name, const json& list) {
  if (list.empty()) refuse_parameter(name, "the list of values is empty");
  std::vector<std::string> texts;
  for (const json& value : list) {
    texts.push_back(value.dump());
    if (std::count(texts.begin(), texts.end(), texts.back()) > 1) {
      refuse_parameter(name, "the value " + texts.back() + " is listed twice");
    }
  }
  return texts;
}

void read_conditions(SweepParameter& p, const json& when) {
  if (!when.is_object() || when.empty()) {
    refuse_parameter(p.name, "`when` must be a table, such as { solver = \"sgdm\" }");
  }
  for (const auto& [other, value] : when.items()) {
    SweepCondition condition{.parameter = other};
    if (value.is_object()) {
      const std::string where = p.name + ", when " + other;
      condition.low = value.contains("low") ? finite_number(where, value, "low") : -HUGE_VAL;
      condition.high = value.contains("high") ? finite_number(where, value, "high") : HUGE_VAL;
      for (const auto& [key, unused] : value.items()) {
        if (key != "low" && key != "high") {
          refuse_parameter(where, "unknown key `" + key + "`", suggest(key, {"low", "high"}));
        }
      }
    } else {
      condition.values =
          value.is_array() ? texts_of(p.name, value) : std::vector<std::string>{value.dump()};
    }
    p.when.push_back(std::move(condition));
  }
}

SweepParameter read_parameter(const std::string& name, const json& value) {
  SweepParameter p{.name = name};
  if (value.is_array()) {
    p.values = texts_of(name, value);
    return p;
  }
  for (const auto& [key, unused] : value.items()) {
    if (std::find(range_keys.begin(), range_keys.end(), key) == range_keys.end()) {
      refuse_parameter(name, "unknown key `" + key + "`", suggest(key, range_keys));
    }
  }
  if (value.contains("when")) read_conditions(p, value["when"]);
  if (value.contains("values")) {
    if (!value["values"].is_array()) refuse_parameter(name, "`values` must be a list");
    if (value.contains("low") || value.contains("high")) refuse_parameter(name, shapes);
    p.values = texts_of(name, value["values"]);
    return p;
  }
  p.low = finite_number(name, value, "low");
  p.high = finite_number(name, value, "high");
  const auto whole = [&](const char* key) { return value[key].is_number_integer(); };
  p.integer = whole("low") && whole("high");
  if (value.contains("integer")) {
    if (!value["integer"].is_boolean()) refuse_parameter(name, "`integer` must be true or false");
    p.integer = value["integer"].get<bool>();
  }
  if (value.contains("scale")) {
    const json& scale = value["scale"];
    if (scale != "log" && scale != "linear") {
      refuse_parameter(name, "`scale` must be \"linear\" or \"log\", received " + scale.dump());
    }
    p.logarithmic = scale == "log";
  }
  if (value.contains("steps")) {
    if (!value["steps"].is_number_integer() || value["steps"].get<int64_t>() < 2) {
      refuse_parameter(name, "`steps` must be a whole number of at least 2");
    }
    p.steps = value["steps"].get<int64_t>();
  }
  return p;
}

// Keys are dotted names in quotes, or tables in tables.
void read_parameters(const json& table, const std::string& before, SweepOptions& options) {
  for (const auto& [key, value] : table.items()) {
    const std::string name = before.empty() ? key : before + "." + key;
    if (value.is_object() && !is_description(value)) {
      read_parameters(value, name, options);
    } else if (value.is_array() || value.is_object()) {
      options.parameters.push_back(read_parameter(name, value));
    } else {
      refuse_parameter(name, "received the single value " + value.dump(), shapes);
    }
  }
}

void check_range(const SweepParameter& p) {
  if (!std::isfinite(p.low) || !std::isfinite(p.high) || p.low > p.high) {
    refuse_parameter(p.name, "`low` must not be larger than `high`");
  }
  if (p.logarithmic && p.low <= 0) {
    refuse_parameter(p.name, "a logarithmic range must be above 0");
  }
  if (p.integer && (p.low != std::floor(p.low) || p.high != std::floor(p.high) ||
                    std::max(-p.low, p.high) > 1e15)) {
    refuse_parameter(p.name, "the ends of an integer range must be whole numbers");
  }
}

using ParametersByName = std::map<std::string, const SweepParameter*>;

ParametersByName parameters_by_name(const std::vector<SweepParameter>& parameters) {
  ParametersByName found;
  for (const SweepParameter& p : parameters) found[p.name] = &p;
  return found;
}

// Calls visit(holder, condition) for the conditions of a parameter and of all that they name, those
// of each holder once. Where a name may be unknown, visit() throws.
template <class Visit>
void for_each_condition(const SweepParameter& p, const ParametersByName& named,
                        const Visit& visit) {
  std::set<std::string> seen{p.name};
  std::vector<const SweepParameter*> open{&p};
  while (!open.empty()) {
    const SweepParameter& at = *open.back();
    open.pop_back();
    for (const SweepCondition& c : at.when) {
      visit(at, c);
      if (seen.insert(c.parameter).second) open.push_back(named.at(c.parameter));
    }
  }
}

// Conditions refer to parameters of the sweep, and not in a circle.
void check_conditions(const std::vector<SweepParameter>& parameters) {
  const ParametersByName named = parameters_by_name(parameters);
  std::vector<std::string> names;
  for (const SweepParameter& p : parameters) names.push_back(p.name);
  for (const SweepParameter& p : parameters) {
    for_each_condition(p, named, [&](const SweepParameter& holder, const SweepCondition& c) {
      if (!named.contains(c.parameter)) {
        refuse_parameter(holder.name,
                         "`when` names `" + c.parameter + "`, which is not a parameter",
                         suggest(c.parameter, names));
      }
      if (c.parameter == p.name) {
        refuse_parameter(p.name, "its condition depends on the parameter itself");
      }
    });
  }
}

// Whether a value (JSON) meets a condition.
bool meets(const std::string& value, const SweepCondition& condition) {
  const json given = parse_json<json>(value);
  if (condition.values.empty()) {
    return given.is_number() && given.get<double>() >= condition.low &&
           given.get<double>() <= condition.high;
  }
  return std::any_of(condition.values.begin(), condition.values.end(),
                     [&](const std::string& wanted) { return parse_json<json>(wanted) == given; });
}

// Whether a parameter has a value that meets all conditions. A number drawn from a range, unlike
// those of a grid, is not one that was written down.
bool can_meet(const SweepParameter& p, const std::vector<const SweepCondition*>& conditions,
              bool grid) {
  const auto meets_all = [&](const std::string& value) {
    return std::all_of(conditions.begin(), conditions.end(),
                       [&](const SweepCondition* c) { return meets(value, *c); });
  };
  if (!p.values.empty()) return std::any_of(p.values.begin(), p.values.end(), meets_all);
  double low = p.low, high = p.high;
  for (const SweepCondition* c : conditions) {
    if (c->values.empty()) {
      low = std::max(low, c->low);
      high = std::min(high, c->high);
      continue;
    }
    // Single values of a range.
    if (!p.integer && !grid && p.low < p.high) return false;
    return std::any_of(c->values.begin(), c->values.end(), [&](const std::string& value) {
      const json number = parse_json<json>(value);
      if (!number.is_number() || !meets_all(value)) return false;
      const auto at = number.get<double>();
      return at >= p.low && at <= p.high && (!p.integer || at == std::floor(at));
    });
  }
  return p.integer ? std::ceil(low) <= std::floor(high) : low <= high;
}

std::string text_of_condition(const SweepCondition& c) {
  std::string text;
  for (const std::string& value : c.values) text += (text.empty() ? "" : " or ") + value;
  if (!c.values.empty()) return c.parameter + " = " + text;
  const auto number = [](double value) { return json(value).dump(); };
  if (std::isinf(c.low)) return c.parameter + " up to " + number(c.high);
  if (std::isinf(c.high)) return c.parameter + " from " + number(c.low);
  return c.parameter + " from " + number(c.low) + " to " + number(c.high);
}

std::string text_of_values(const SweepParameter& p) {
  std::string text;
  for (const std::string& value : p.values) text += (text.empty() ? "" : ", ") + value;
  if (!p.values.empty()) return "has the values " + text;
  return "is " + std::string(p.integer ? "a whole number " : "") + "from " + json(p.low).dump() +
         " to " + json(p.high).dump();
}

// Refuses a parameter that no trial can use: its conditions, and those of the parameters that they
// name, contradict each other or a parameter's values.
void check_conditions_can_hold(const std::vector<SweepParameter>& parameters, bool grid) {
  const ParametersByName named = parameters_by_name(parameters);
  for (const SweepParameter& p : parameters) {
    std::map<std::string, std::vector<const SweepCondition*>> conditions;
    for_each_condition(p, named, [&](const SweepParameter&, const SweepCondition& c) {
      conditions[c.parameter].push_back(&c);
    });
    for (const auto& [name, all] : conditions) {
      const SweepParameter& other = *named.at(name);
      if (can_meet(other, all, grid)) continue;
      std::string wanted;
      for (const SweepCondition* c : all) {
        wanted += (wanted.empty() ? "" : " and ") + text_of_condition(*c);
      }
      refuse_parameter(
          p.name,
          "its condition can never be true: it needs " + wanted + ", but " + name + " " +
              text_of_values(other),
          "no trial would use it; text in quotes is not a number, and any number from a "
          "range is { low = A, high = B }");
    }
  }
}

}  // namespace

namespace {

template <class T>
SweepParameter parameter_of_list(const std::string& name, const std::vector<T>& values) {
  SweepParameter p{.name = name};
  for (const T& value : values) p.values.push_back(json(value).dump());
  if (p.values.empty()) refuse_parameter(name, "the list of values is empty");
  return p;
}

}  // namespace

SweepParameter sweep_values(const std::string& name, const std::vector<int64_t>& values) {
  return parameter_of_list(name, values);
}

SweepParameter sweep_values(const std::string& name, const std::vector<double>& values) {
  return parameter_of_list(name, values);
}

SweepParameter sweep_values(const std::string& name, const std::vector<std::string>& values) {
  return parameter_of_list(name, values);
}

SweepParameter sweep_range(const std::string& name, double low, double high, bool logarithmic) {
  return {.name = name, .low = low, .high = high, .logarithmic = logarithmic};
}

SweepParameter sweep_integers(const std::string& name, int64_t low, int64_t high,
                              bool logarithmic) {
  return {.name = name,
          .low = static_cast<double>(low),
          .high = static_cast<double>(high),
          .logarithmic = logarithmic,
          .integer = true};
}

void SweepOptions::visit(FieldVisitor& v) {
  v.text("method", method, "search method: how trials are chosen and pruned",
         {"grid", "random", "sobol", "successive-halving", "hyperband", "tpe"});
  v.text("draws", draws, "successive-halving, hyperband: how the parameters are sampled",
         {"random", "sobol", "grid"});
  v.text("metric", metric,
         "objective, on the validation data: accuracy, loss or another metric of the job; "
         "\"\": the job's objective if it names one, else accuracy, or the loss if there are no "
         "labels");
  v.text("goal", goal, "\"minimize\" or \"maximize\" the metric; \"\": as the metric requires",
         {"", "minimize", "maximize"});
  v.integer("trials", trials, "number of trials; 0: all of a grid", {.min = 0, .max = 100'000});
  v.integer("seed", seed, "random seed of the sweep");
  v.integer("repeats", repeats,
            "runs of each trial with consecutive seeds of the training; their mean is compared",
            {.min = 1, .max = 1000});
  v.integers("rungs", rungs,
             "successive-halving: epochs at which trials are compared; none: min_epochs, "
             "multiplied by reduction until max_epochs",
             {.min = 1});
  v.integer("min_epochs", min_epochs, "successive-halving, hyperband: epochs of the first rung",
            {.min = 1});
  v.integer(
      "reduction", reduction,
      "successive-halving, hyperband: reduction factor; one in this many trials goes on at a rung",
      {.min = 2, .max = 1000});
  v.integer("window", window,
            "tpe: number of trials that can run at once; a trial is chosen by the results of the "
            "trials at least this far before it",
            {.min = 1});
  v.integer("random_trials", random_trials, "tpe: number of first trials that are random",
            {.min = 1});
}

void SweepOptions::check() const {
  if (parameters.empty()) {
    throw InvalidArgument("[sweep] there are no parameters",
                          "list them in a table [sweep.parameters]: width = [8, 16]");
  }
  std::set<std::string> names;
  for (const SweepParameter& p : parameters) {
    if (!names.insert(p.name).second) refuse_parameter(p.name, "it is given twice");
    if (p.values.empty()) check_range(p);
  }
  check_conditions(parameters);
  if (!std::is_sorted(rungs.begin(), rungs.end()) ||
      std::adjacent_find(rungs.begin(), rungs.end()) != rungs.end()) {
    throw InvalidArgument("[sweep] rungs must increase");
  }
  const bool halves = method == "successive-halving" || method == "hyperband";
  const bool grid = method == "grid" || (halves && draws == "grid");
  check_conditions_can_hold(parameters, grid);
  if (!grid && trials == 0) {
    throw InvalidArgument("[sweep] trials is missing", "give the number of trials");
  }
  if (method == "hyperband" && !rungs.empty()) {
    throw InvalidArgument("[sweep] hyperband has no field rungs", "use min_epochs and reduction");
  }
}

SweepOptions read_sweep_table(const json& table) {
  if (!table.is_object()) throw InvalidArgument("[sweep] must be a table");
  SweepOptions options;
  FieldReader reader(table, "sweep", {}, {"parameters"});
  options.visit(reader);
  reader.finish();
  if (table.contains("parameters")) {
    if (!table["parameters"].is_object()) {
      throw InvalidArgument("[sweep.parameters] must be a table");
    }
    read_parameters(table["parameters"], "", options);
  }
  options.check();
  return options;
}

ordered_json sweep_table_json(const SweepOptions& options) {
  ordered_json table = ordered_json::object();
  FieldWriter writer(table);
  SweepOptions copy = options;
  copy.visit(writer);
  if (copy.rungs.empty()) table.erase("rungs");
  ordered_json& parameters = table["parameters"] = ordered_json::object();
  for (const SweepParameter& p : options.parameters) {
    ordered_json& one = parameters[p.name] = ordered_json::object();
    if (!p.values.empty()) {
      for (const std::string& value : p.values)
        one["values"].push_back(parse_json<ordered_json>(value));
    } else {
      one["low"] = p.low;
      one["high"] = p.high;
      one["scale"] = p.logarithmic ? "log" : "linear";
      one["integer"] = p.integer;
      if (p.steps > 0) one["steps"] = p.steps;
    }
    for (const SweepCondition& c : p.when) {
      ordered_json& condition = one["when"][c.parameter];
      for (const std::string& value : c.values)
        condition.push_back(parse_json<ordered_json>(value));
      if (!c.values.empty()) continue;
      condition = ordered_json::object();
      if (std::isfinite(c.low)) condition["low"] = c.low;
      if (std::isfinite(c.high)) condition["high"] = c.high;
    }
  }
  return table;
}

namespace {

std::string toml(const json& value) {
  if (value.is_array()) {
    std::string text;
    for (const json& one : value) text += (text.empty() ? "" : ", ") + toml(one);
    return "[" + text + "]";
  }
  if (value.is_object()) {
    std::string text;
    for (const auto& [key, one] : value.items()) {
      text += (text.empty() ? "" : ", ") + json(key).dump() + " = " + toml(one);
    }
    return "{ " + text + " }";
  }
  return value.dump();
}

}  // namespace

std::string toml_of_json(const std::string& text) { return toml(parse_json<json>(text)); }

}  // namespace lockstep
