#include "apps/lockstep/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "apps/lockstep/command.h"
#include "lockstep/base/suggest.h"

namespace lockstep::command {
namespace {

// Breaks text between words into lines of at most `width` columns.
std::string wrapped(const std::string& text, size_t width) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      out += '\n';
      column = 0;
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \n", at), text.size());
    if (column > 0 && column + 1 + end - at > width) {
      out += '\n';
      column = 0;
    }
    if (column > 0) {
      out += ' ';
      ++column;
    }
    out.append(text, at, end - at);
    column += end - at;
    at = end < text.size() && text[end] == ' ' ? end + 1 : end;
  }
  return out + '\n';
}

// Breaks descriptions in the right column at 80 columns.
class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(kLeft); }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), kWidth);
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return narrow(CLI::Formatter::make_option_desc(option));
  }
  // The list of options that an option excludes can be long.
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string text = CLI::Formatter::make_option(option, is_positional);
    const size_t end = text.find('\n');
    if (end <= kWidth) return text;
    std::string head = wrapped(text.substr(0, end).substr(2), kWidth - kHang);
    head.pop_back();
    for (size_t at = head.find('\n'); at != std::string::npos; at = head.find('\n', at + 1)) {
      head.insert(at + 1, kHang, ' ');
    }
    return "  " + head + text.substr(end);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(), narrow(command->get_description()), kLeft);
    return out.str();
  }

 private:
  static constexpr size_t kWidth = 80, kLeft = 30, kHang = 6;

  static std::string narrow(const std::string& text) {
    std::string lines = wrapped(text, kWidth - kLeft);
    lines.pop_back();
    return lines;
  }
};

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

// The nearest known option to an unknown one.
std::string hint_for(const CLI::App& app, const std::vector<std::string>& unexpected) {
  const CLI::App* chosen = &app;
  for (const CLI::App* sub : app.get_subcommands()) chosen = sub;
  const std::string help =
      "try: lockstep " + (chosen == &app ? "" : chosen->get_name() + " ") + "--help";
  if (unexpected.empty() || !unexpected.front().starts_with("--")) return help;
  std::vector<std::string> names;
  for (const CLI::Option* option : chosen->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string given = unexpected.front().substr(0, unexpected.front().find('='));
  const std::string nearest = nearest_name(given, names);
  return nearest.empty() ? help : "did you mean `" + nearest + "`?";
}

}  // namespace

struct Commands::Parser {
  struct Page {
    CLI::App* command = nullptr;
    std::string details;
    std::vector<Example> examples;
  };

  CLI::App app;
  Action action;  // of the subcommand that was parsed
  std::vector<Page> pages;
};

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::range(int64_t first, int64_t last) {
  option_->check(CLI::Range(first, last));
  return *this;
}

Option& Option::share() {
  option_->check(CLI::Range(0.0, 1.0));
  return *this;
}

Option& Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

Option& Option::not_empty() {
  return check([](const std::string& value) {
    return value.empty() ? std::string("the name must not be empty") : "";
  });
}

Option& Option::check(std::function<std::string(const std::string& value)> problem) {
  option_->check(std::move(problem));
  return *this;
}

Option& Option::separated_by_commas() {
  option_->delimiter(',');
  return *this;
}

Option& Option::one_value_each() {
  option_->allow_extra_args(false);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

template <class T>
Option Subcommand::add_option(const std::string& name, T& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

template Option Subcommand::add_option(const std::string&, std::string&, const std::string&);
template Option Subcommand::add_option(const std::string&, int&, const std::string&);
template Option Subcommand::add_option(const std::string&, int64_t&, const std::string&);
template Option Subcommand::add_option(const std::string&, double&, const std::string&);
template Option Subcommand::add_option(const std::string&, std::vector<std::string>&,
                                       const std::string&);
template Option Subcommand::add_option(const std::string&, std::vector<double>&,
                                       const std::string&);

Option Subcommand::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}

Option Subcommand::option(const std::string& name) const { return Option(app_->get_option(name)); }

Commands::Commands(const std::string& purpose, const std::string& footer)
    : parser_(new Parser{CLI::App(purpose, "lockstep"), {}, {}}) {
  CLI::App& app = parser_->app;
  app.formatter(std::make_shared<Formatter>());
  app.set_version_flag("--version", std::string("lockstep ") + LOCKSTEP_VERSION,
                       "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  app.footer(footer);
}

Commands::~Commands() = default;

Subcommand Commands::add(const std::string& name, const std::string& purpose,
                         const std::string& details, std::vector<Example> examples, Action action) {
  CLI::App* const command = parser_->app.add_subcommand(name, purpose);
  std::string footer = wrapped(details, 80) + "\nExamples:\n";
  for (const auto& [line, meaning] : examples) {
    footer += fmt::format("  {}\n      {}\n", line, meaning);
  }
  command->footer(footer);
  command->callback(
      [parser = parser_.get(), action = std::move(action)] { parser->action = action; });
  parser_->pages.push_back({command, details, std::move(examples)});
  return Subcommand(command);
}

std::string Commands::purpose() const { return parser_->app.get_description(); }

std::vector<Definition> Commands::definitions() const {
  std::vector<Definition> all;
  for (const Parser::Page& page : parser_->pages) {
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

std::vector<Argument> Commands::global_options() const {
  std::vector<Argument> positionals, options;
  add_arguments(parser_->app, positionals, options);
  return options;
}

Action Commands::parse(int argc, char** argv) {
  CLI::App& app = parser_->app;
  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      throw UsageError(std::string("unknown command `") + argv[1] + "`", suggest(argv[1], names));
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    app.exit(success, text, text);
    return [text = text.str()] {
      print(text);
      return 0;
    };
  } catch (const CLI::ExtrasError& error) {
    const std::vector<std::string> unexpected = app.remaining(true);
    throw UsageError(
        unexpected.empty() ? error.what() : "unexpected argument `" + unexpected.front() + "`",
        hint_for(app, unexpected));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what(), hint_for(app, {}));
  }
  return parser_->action;
}

}  // namespace lockstep::command
