// The command line: subcommands and their arguments. A thin layer over CLI11, so that
// command_line.cpp alone includes its headers: they take seconds to compile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep::command {

// The arguments of the command are invalid. hint() says what may be meant.
class UsageError : public Error {
 public:
  using Error::Error;
};

// The work of a subcommand. Returns the exit code.
using Action = std::function<int()>;

struct Example {
  std::string line, meaning;
};

// An argument as completion and manual need it.
struct Argument {
  std::vector<std::string> names;  // "-h", "--help"; a positional has one name
  std::string value;               // type name: "JOB", "N", "bash|zsh|fish"; "" for flags
  std::string help;
  bool required = false;
  bool many = false;  // several values in a row, or the option may be repeated
};

// A subcommand as help, completion and manual need it.
struct Definition {
  std::string name, purpose;
  std::string details;  // paragraphs, separated by empty lines
  std::vector<Argument> positionals, options;
  std::vector<Example> examples;
};

// Sets the properties of an argument. Refers to it by address; copies mean the same argument.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  // The type names (JOB, MODEL, DIR, ...; "a|b" for words) determine what completion.cpp offers.
  Option& type_name(const std::string& name);
  // Accepts integers from `first` to `last`.
  Option& range(int64_t first, int64_t last);
  // Accepts numbers from 0 to 1.
  Option& share();
  Option& not_negative();
  // For names of files and folders: refuses "".
  Option& not_empty();
  // `problem` returns what is wrong with a value, or "".
  Option& check(std::function<std::string(const std::string& value)> problem);
  // Several values are separated by commas.
  Option& separated_by_commas();
  // Each use of the option takes one value.
  Option& one_value_each();
  Option& needs(const Option& other);
  Option& excludes(const Option& other);

 private:
  CLI::Option* option_;
};

// Adds arguments to a subcommand. Refers to it by address; copies mean the same subcommand.
class Subcommand {
 public:
  explicit Subcommand(CLI::App* app) : app_(app) {}

  // An option "--name", or a positional "name", with a value: std::string, int, int64_t, double, or
  // a vector of std::string or double. The variable must live until the subcommand's action ends.
  template <class T>
  Option add_option(const std::string& name, T& value, const std::string& help);
  Option add_flag(const std::string& name, bool& value, const std::string& help);
  // An option that was added.
  Option option(const std::string& name) const;

 private:
  CLI::App* app_;
};

// The command with its subcommands.
class Commands {
 public:
  // `purpose` is one line; `footer` ends the help.
  Commands(const std::string& purpose, const std::string& footer);
  ~Commands();
  Commands(const Commands&) = delete;
  Commands& operator=(const Commands&) = delete;

  // `purpose` is one line. Help, manual and completion are made from the texts and the arguments.
  Subcommand add(const std::string& name, const std::string& purpose, const std::string& details,
                 std::vector<Example> examples, Action action);

  std::string purpose() const;
  // All subcommands, in order.
  std::vector<Definition> definitions() const;
  // The options before the subcommand.
  std::vector<Argument> global_options() const;

  // The work that the arguments request. Throws UsageError.
  Action parse(int argc, char** argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace lockstep::command
