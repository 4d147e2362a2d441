#include "apps/lockstep/documents/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "apps/lockstep/command.h"
#include "apps/lockstep/documents/reference.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/nn/architectures/architectures.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sources/data_source.h"

namespace lockstep::command {
namespace {

// The completions for a value.
struct Offer {
  std::vector<std::string> words;
  std::vector<std::string> endings;  // of file names
  bool files = false;                // any file
  bool folders = false;
  bool settings = false;  // KEY=VALUE
};

// The completions for a value's type name. For several names, as in "JOB|MODEL", the union.
Offer offer_for(const std::string& value) {
  Offer offer;
  for (size_t at = 0; at <= value.size() && !value.empty();) {
    const size_t end = std::min(value.find('|', at), value.size());
    const std::string kind = value.substr(at, end - at);
    at = end + 1;
    if (kind == "JOB") {
      offer.endings.insert(offer.endings.end(), {"toml", "json"});
      offer.folders = true;
    } else if (kind == "MODEL") {
      offer.endings.emplace_back("safetensors");
      offer.folders = true;
    } else if (kind == "FILE" || kind == "FILES") {
      offer.files = true;
    } else if (kind == "DIR") {
      offer.folders = true;
    } else if (kind == "DATA") {
      offer.words.emplace_back(builtin_digits_name);
      offer.folders = true;
    } else if (kind == "DEVICE") {
      offer.words.insert(offer.words.end(), {"auto", "cpu", "cuda"});
    } else if (kind == "ARCHITECTURE") {
      for (const Architecture& known : architectures()) offer.words.push_back(known.name);
    } else if (kind == "TOPIC") {
      offer.words = reference_topics();
    } else if (kind == "KEY=VALUE") {
      offer.settings = true;
    } else if (std::none_of(kind.begin(), kind.end(),
                            [](unsigned char c) { return std::isupper(c) != 0; })) {
      offer.words.push_back(kind);
    }
  }
  return offer;
}

// A key for --set.
struct Setting {
  std::string key, help;
  std::vector<std::string> choices;
};

// Every field with its dotted key, and with its name alone if no other table has that name.
std::vector<Setting> settings() {
  std::map<std::string, int> count;
  for (const JobTable& table : job_tables()) {
    for (const FieldInfo& field : table.fields) ++count[field.name];
  }
  std::vector<Setting> all;
  for (const JobTable& table : job_tables()) {
    for (const FieldInfo& field : table.fields) {
      all.push_back({table.name + "." + field.name, field.help, field.choices});
      if (table.name == "network" || count[field.name] > 1) continue;
      all.push_back({field.name, field.help, field.choices});
    }
  }
  return all;
}

std::string joined(const std::vector<std::string>& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// Escapes text for use in single quotes.
std::string in_single_quotes(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out;
}

// ---- bash ----

std::string bash_action(const Offer& offer) {
  std::string text;
  if (offer.settings) text += "_lockstep_settings; ";
  if (!offer.words.empty()) text += "_lockstep_words '" + joined(offer.words) + "'; ";
  if (offer.files) {
    text += "_lockstep_files ''; ";
  } else if (!offer.endings.empty()) {
    text += "_lockstep_files '@(" + joined(offer.endings, "|") + ")'; ";
  } else if (offer.folders) {
    text += "_lockstep_folders; ";
  }
  return text.empty() ? ": " : text;
}

constexpr const char* bash_head =
    R"(# bash completion for lockstep, made by `lockstep completion bash`

# Adds those of the words $1 that begin with the word at hand. Readline replaces only what stands
# after its last = or :.
_lockstep_words() {
  local word
  for word in $1; do
    [[ $word == "$current"* ]] && COMPREPLY+=("${word#"$before"}")
  done
}

_lockstep_folders() {
  local name
  while IFS= read -r name; do COMPREPLY+=("${name#"$before"}"); done < <(compgen -d -- "$current")
  compopt -o filenames 2>/dev/null
}

# Files whose ending matches $1 (any, if empty), and folders.
_lockstep_files() {
  local name
  while IFS= read -r name; do
    if [[ -d $name || -z $1 || ${name##*.} == $1 ]]; then COMPREPLY+=("${name#"$before"}"); fi
  done < <(compgen -f -- "$current")
  compopt -o filenames 2>/dev/null
}

)";

constexpr const char* bash_tail = R"(
_lockstep() {
  local line=${COMP_LINE:0:COMP_POINT} command='' option='' current='' before='' word
  local -a words
  local -i i position=0
  COMPREPLY=()
  read -ra words <<<"$line"
  if [[ $line == *[[:space:]] ]]; then words+=(''); fi
  current=${words[-1]}
  for ((i = 1; i < ${#words[@]} - 1; ++i)); do
    word=${words[i]}
    if [[ -z $command ]]; then
      [[ $word != -* ]] && command=$word
    elif [[ -n $option ]]; then
      option=''
    elif [[ $word == -* ]]; then
      [[ $word != *=* ]] && _lockstep_takes_value "$command" "$word" && option=$word
    else
      position+=1
    fi
  done
  if [[ -z $option && $current == --*=* ]]; then
    option=${current%%=*}
    current=${current#*=}
  fi
  before=${current%"${current##*[=:]}"}
  if [[ -z $command ]]; then
    if [[ $current == -* ]]; then
      _lockstep_words "$_lockstep_global_options"
    else
      _lockstep_words "$_lockstep_commands"
    fi
  elif [[ -n $option ]]; then
    _lockstep_value "$command" "$option"
  elif [[ $current == -* ]]; then
    _lockstep_options "$command"
  else
    _lockstep_positional "$command" "$position"
  fi
  return 0
}
complete -F _lockstep lockstep
)";

std::string bash_settings() {
  std::vector<std::string> keys;
  for (const Setting& s : settings()) keys.push_back(s.key + "=");
  std::string text = "_lockstep_settings() {\n  case $current in\n";
  for (const Setting& s : settings()) {
    if (s.choices.empty()) continue;
    std::vector<std::string> words;
    for (const std::string& choice : s.choices) words.push_back(s.key + "=" + choice);
    text += fmt::format("    {}=*) _lockstep_words '{}' ;;\n", s.key, joined(words));
  }
  return text + "    *=*) ;;\n    *)\n      _lockstep_words '" + joined(keys) +
         "'\n      compopt -o nospace 2>/dev/null ;;\n  esac\n}\n";
}

}  // namespace

std::string bash_completion(const Commands& commands) {
  std::vector<std::string> names, global;
  std::string takes = "_lockstep_takes_value() {\n  case \"$1 $2\" in\n    ";
  std::string value = "_lockstep_value() {\n  case \"$1 $2\" in\n";
  std::string options = "_lockstep_options() {\n  case $1 in\n";
  std::string positional = "_lockstep_positional() {\n  case \"$1 $2\" in\n";
  std::string taking;
  for (const Definition& d : commands.definitions()) {
    names.push_back(d.name);
    std::vector<std::string> all;
    for (const Argument& a : d.options) {
      all.insert(all.end(), a.names.begin(), a.names.end());
      if (a.value.empty()) continue;
      for (const std::string& name : a.names) {
        taking += (taking.empty() ? "" : " | ") + ("'" + d.name + " " + name + "'");
        value += fmt::format("    '{} {}') {};;\n", d.name, name, bash_action(offer_for(a.value)));
      }
    }
    options += fmt::format("    {}) _lockstep_words '{}' ;;\n", d.name, joined(all));
    for (size_t i = 0; i < d.positionals.size(); ++i) {
      const Argument& a = d.positionals[i];
      const std::string position = a.many ? "*" : std::to_string(i);
      positional +=
          fmt::format("    {}\\ {}) {};;\n", d.name, position, bash_action(offer_for(a.value)));
    }
  }
  for (const Argument& a : commands.global_options()) {
    global.insert(global.end(), a.names.begin(), a.names.end());
  }
  const std::string end = "  esac\n}\n\n";
  return bash_head +
         fmt::format("_lockstep_commands='{}'\n_lockstep_global_options='{}'\n\n", joined(names),
                     joined(global)) +
         bash_settings() + "\n# Whether option $2 of command $1 is followed by a value.\n" + takes +
         taking + ") return 0 ;;\n    *) return 1 ;;\n" + end + value + end + options + end +
         positional + "  esac\n}\n" + bash_tail;
}

// ---- zsh ----

namespace {

// Escapes text for the brackets and colons of _arguments and _describe.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return in_single_quotes(out);
}

std::string zsh_action(const Offer& offer) {
  std::vector<std::string> actions;
  if (offer.settings) return "_lockstep_settings";
  std::string words;
  for (const std::string& word : offer.words) {
    words += (words.empty() ? "" : " ") + zsh_text(word);
  }
  const bool files = offer.files || offer.folders || !offer.endings.empty();
  if (!words.empty() && files) return "_lockstep_data";
  if (!words.empty()) return "(" + words + ")";
  if (offer.files) return "_files";
  if (!offer.endings.empty()) return "_files -g \"*.(" + joined(offer.endings, "|") + ")\"";
  return offer.folders ? "_files -/" : " ";
}

std::string zsh_option(const Argument& a) {
  const std::string value =
      a.value.empty() ? "" : ":" + zsh_text(a.value) + ":" + zsh_action(offer_for(a.value));
  std::string text;
  for (const std::string& name : a.names) {
    const std::string own = (a.many ? "'*" : "'(" + joined(a.names) + ")") + name +
                            (!a.value.empty() && name.starts_with("--") ? "=" : "");
    text += " \\\n        " + own + "[" + zsh_text(a.help) + "]" + value + "'";
  }
  return text;
}

}  // namespace

std::string zsh_completion(const Commands& commands) {
  std::string text =
      "#compdef lockstep\n# zsh completion for lockstep, made by `lockstep completion zsh`\n\n"
      "_lockstep_data() {\n  _alternative 'words:built in:(" +
      zsh_text(builtin_digits_name) +
      ")' 'folders:folder:_files -/'\n}\n\n_lockstep_settings() {\n  local -a found\n"
      "  case $PREFIX in\n";
  for (const Setting& s : settings()) {
    if (s.choices.empty()) continue;
    text += fmt::format("    {}=*) compset -P '*='; compadd -- {}; return ;;\n", s.key,
                        joined(s.choices));
  }
  text += "    *=*) return ;;\n  esac\n  found=(\n";
  for (const Setting& s : settings()) {
    text += fmt::format("    '{}:{}'\n", zsh_text(s.key), zsh_text(s.help));
  }
  text +=
      "  )\n  _describe field found -S = -q\n}\n\n_lockstep() {\n  local context state line\n"
      "  typeset -A opt_args\n  local -a found\n  _arguments -C";
  for (const Argument& a : commands.global_options()) text += zsh_option(a);
  text +=
      " \\\n        '1:command:->command' '*::argument:->argument'\n  case $state in\n"
      "    command)\n      found=(\n";
  for (const Definition& d : commands.definitions()) {
    text += fmt::format("        '{}:{}'\n", zsh_text(d.name), zsh_text(d.purpose));
  }
  text += "      )\n      _describe command found ;;\n    argument)\n      case $words[1] in\n";
  for (const Definition& d : commands.definitions()) {
    text += "      " + d.name + ")\n        _arguments";
    for (const Argument& a : d.options) text += zsh_option(a);
    for (size_t i = 0; i < d.positionals.size(); ++i) {
      const Argument& a = d.positionals[i];
      text += fmt::format(" \\\n        '{}:{}:{}'", a.many ? "*" : std::to_string(i + 1),
                          zsh_text(a.value), zsh_action(offer_for(a.value)));
    }
    text += " ;;\n";
  }
  return text + "      esac ;;\n  esac\n}\n\n_lockstep \"$@\"\n";
}

// ---- fish ----

namespace {

std::string fish_text(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

bool takes_files(const Offer& offer) {
  return offer.files || offer.folders || !offer.endings.empty();
}

// The arguments of `complete` for the values of an option.
std::string fish_values(const Offer& offer) {
  std::string text = takes_files(offer) ? " -F" : "";
  if (offer.settings) text += " -a '(__lockstep_settings)'";
  if (!offer.words.empty()) text += " -a '" + fish_text(joined(offer.words)) + "'";
  return text;
}

}  // namespace

std::string fish_completion(const Commands& commands) {
  std::string text =
      "# fish completion for lockstep, made by `lockstep completion fish`\n\n"
      "function __lockstep_settings\n";
  for (const Setting& s : settings()) {
    const std::string help = fish_text(s.help);
    if (s.choices.empty()) text += fmt::format("    printf '%s\\t%s\\n' '{}=' '{}'\n", s.key, help);
    for (const std::string& choice : s.choices) {
      text += fmt::format("    printf '%s\\t%s\\n' '{}={}' '{}'\n", s.key, choice, help);
    }
  }
  text += "end\n\ncomplete -c lockstep -f\n";
  const auto option = [](const Argument& a) {
    std::string words;
    for (const std::string& name : a.names) {
      words += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    const Offer offer = offer_for(a.value);
    if (!a.value.empty()) words += (takes_files(offer) ? " -r" : " -x") + fish_values(offer);
    return words + " -d '" + fish_text(a.help) + "'\n";
  };
  for (const Argument& a : commands.global_options()) {
    text += "complete -c lockstep -n __fish_use_subcommand" + option(a);
  }
  for (const Definition& d : commands.definitions()) {
    text += fmt::format("complete -c lockstep -n __fish_use_subcommand -a {} -d '{}'\n", d.name,
                        fish_text(d.purpose));
    const std::string within =
        "complete -c lockstep -n '__fish_seen_subcommand_from " + d.name + "'";
    for (const Argument& a : d.options) text += within + option(a);
    for (const Argument& a : d.positionals) {
      const std::string values = fish_values(offer_for(a.value));
      if (!values.empty()) text += within + values + "\n";
    }
  }
  return text;
}

void add_completion(Commands& commands) {
  auto shell = std::make_shared<std::string>();
  Subcommand sub = commands.add(
      "completion", "A completion script for a shell",
      "It completes commands, options, files, the fields of --set and their values. These scripts "
      "are part of an installed Lockstep.",
      {{"source <(lockstep completion bash)", "in ~/.bashrc"},
       {"lockstep completion zsh > \"${fpath[1]}/_lockstep\"", "zsh, once"},
       {"lockstep completion fish > ~/.config/fish/completions/lockstep.fish", "fish, once"}},
      [shell, &commands] {
        print(*shell == "bash"  ? bash_completion(commands)
              : *shell == "zsh" ? zsh_completion(commands)
                                : fish_completion(commands));
        return 0;
      });
  sub.add_option("shell", *shell, "The shell")
      .required()
      .type_name("bash|zsh|fish")
      .check([](const std::string& given) {
        const bool known = given == "bash" || given == "zsh" || given == "fish";
        return known ? "" : "`" + given + "` is unknown; known shells: bash, zsh, fish";
      });
}

}  // namespace lockstep::command
