#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/engine/nn/architectures/architectures.h"
#include "lockstep/runs/jobs/networks/architecture_job.h"

namespace lockstep::command {
namespace {

using nlohmann::json;

struct ArchitectureArguments {
  std::string name;
  std::map<std::string, std::string> fields;
};

// "10", or "512,256" for a list.
json value_of(const std::string& text) {
  const json value = parse_json_or_discard<json>("[" + text + "]");
  if (value.is_discarded() || value.empty()) return text;
  return value.size() == 1 ? value[0] : value;
}

// "--stochastic-depth"
std::string option_of(std::string field) {
  std::ranges::replace(field, '_', '-');
  return "--" + field;
}

int architecture_command(const ArchitectureArguments& a) {
  if (a.name.empty()) {
    for (const auto& [name, value] : a.fields) {
      if (value.empty()) continue;
      const std::string option = option_of(name);
      throw InvalidArgument("[architecture] " + option + " needs an architecture",
                            "for example: lockstep architecture resnet20 " + option + " " + value);
    }
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Architecture& known : architectures()) rows.emplace_back(known.name, known.help);
    print_table(rows);
    return 0;
  }
  json fields = json::object();
  for (const auto& [name, value] : a.fields) {
    if (!value.empty()) fields[name] = value_of(value);
  }
  print(architecture_job(a.name, fields));
  return 0;
}

}  // namespace

void add_architecture(Commands& commands) {
  auto a = std::make_shared<ArchitectureArguments>();
  Subcommand sub = commands.add(
      "architecture", "Print the job file of a known architecture",
      "A well-known network, written out layer by layer with suitable training options. Save it, "
      "change it and train it. Without a name, all architectures are listed.",
      {{"lockstep architecture", "the list"},
       {"lockstep architecture resnet20 --classes 100 > job.toml", "for a hundred classes"}},
      [a] { return architecture_command(*a); });
  sub.add_option("name", a->name, "Architecture (default: list all)").type_name("ARCHITECTURE");
  for (const Architecture& known : architectures()) {
    for (const FieldInfo& field : known.fields) {
      if (a->fields.contains(field.name)) continue;
      sub.add_option(option_of(field.name), a->fields[field.name], field.help).type_name("N");
    }
  }
}

}  // namespace lockstep::command
