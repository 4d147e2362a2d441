// The command lockstep: trains and uses networks.

#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/suggest.h"
#include "lockstep/parallel/runtime.h"

namespace {

using namespace lockstep;
using namespace lockstep::command;

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

int run(int argc, char** argv) {
  Commands commands;
  CLI::App& app = commands.app();
  if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands({})) names.push_back(sub->get_name());
    if (std::find(names.begin(), names.end(), argv[1]) == names.end()) {
      print_error(std::string("unknown command `") + argv[1] + "`", suggest(argv[1], names));
      return exit_usage;
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    std::ostringstream text;
    app.exit(success, text, text);
    print(text.str());
    return 0;
  } catch (const CLI::ExtrasError& error) {
    std::vector<std::string> unexpected = app.remaining(true);
    print_error(
        unexpected.empty() ? error.what() : "unexpected argument `" + unexpected.front() + "`",
        hint_for(app, unexpected));
    return exit_usage;
  } catch (const CLI::ParseError& error) {
    print_error(error.what(), hint_for(app, {}));
    return exit_usage;
  }
  return commands.action()();
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::Runtime runtime(argc, argv);
  try {
    return run(argc, argv);
  } catch (const lockstep::Error& error) {
    print_error(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    print_error(lockstep::out_of_memory_text(), lockstep::out_of_memory_hint());
  } catch (const std::system_error& error) {
    print_error("system error: " + error.code().message(),
                "limits of the shell: ulimit -u (processes), -v (memory), -n (open files)");
  } catch (const std::exception& error) {
    print_error(std::string("this is a bug in Lockstep: ") + error.what(), "");
  }
  return exit_failure;
}
