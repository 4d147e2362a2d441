#include "apps/lockstep/definitions.h"

#include <algorithm>

namespace lockstep::command {
namespace {

Argument argument_of(const CLI::Option& option) {
  Argument argument;
  if (option.get_positional()) {
    argument.names.push_back(option.get_name(true));
  } else {
    for (const auto& name : option.get_snames()) argument.names.push_back("-" + name);
    for (const auto& name : option.get_lnames()) argument.names.push_back("--" + name);
  }
  // CLI11 appends its checks to the type name: "N:INT in [1 - 1024]".
  if (option.get_items_expected_max() > 0) {
    argument.value = option.get_type_name();
    argument.value.resize(std::min(argument.value.find(':'), argument.value.size()));
  }
  argument.help = option.get_description();
  argument.required = option.get_required();
  argument.many = option.get_expected_max() > 1 || option.get_items_expected_max() > 1;
  return argument;
}

void add_arguments(const CLI::App& app, std::vector<Argument>& positionals,
                   std::vector<Argument>& options) {
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? positionals : options).push_back(argument_of(*option));
  }
}

}  // namespace

std::vector<Definition> definitions(const Commands& commands) {
  std::vector<Definition> all;
  for (const Page& page : commands.pages()) {
    Definition d{page.command->get_name(),
                 page.command->get_description(),
                 page.details,
                 {},
                 {},
                 page.examples};
    add_arguments(*page.command, d.positionals, d.options);
    all.push_back(std::move(d));
  }
  return all;
}

std::vector<Argument> global_options(const Commands& commands) {
  std::vector<Argument> positionals, options;
  add_arguments(commands.app(), positionals, options);
  return options;
}

}  // namespace lockstep::command
