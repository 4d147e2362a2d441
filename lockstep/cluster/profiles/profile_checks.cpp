#include "lockstep/cluster/profiles/profile_checks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_field(const std::string& where, const std::string& field,
                               const std::string& what, const std::string& hint) {
  throw InvalidArgument("[" + where + "] " + field + ": " + what, hint);
}

bool is_name_of_variable(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return (std::isalnum(c) != 0 && c < 128) || c == '_'; });
}

void check_environment(const ClusterProfile& profile, const std::string& where) {
  for (const std::string& variable : profile.environment) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    if (equals == std::string::npos || !is_name_of_variable(name) ||
        variable.find_first_of("\n\r") != std::string::npos) {
      refuse_field(where, "environment",
                   "\"" + name.substr(0, 40) + "\" is not NAME=VALUE on one line",
                   "for example NCCL_SOCKET_IFNAME=ib0");
    }
    if (holds_credential(name, variable.substr(equals + 1))) {
      refuse_field(where, "environment",
                   name +
                       " looks like a credential, and Slurm stores the "
                       "variables of jobs where others may read them",
                   "keep credentials in files that the nodes read, such as ~/.aws/credentials; "
                   "AWS_SHARED_CREDENTIALS_FILE can name another");
    }
  }
}

// Options of sbatch that a profile cannot give, by what serves instead.
struct OwnOption {
  const char *name, *letter, *instead;
};
constexpr const char* diary_instead = "`lockstep jobs diary` shows the output";
constexpr const char* always_instead = "each job already has the setting that it needs";
constexpr const char* question_instead = "sbatch would answer instead of taking the job";
constexpr std::array own_options{
    OwnOption{"partition", "p", "use the field partition"},
    OwnOption{"nodes", "N", "use the field nodes"},
    OwnOption{"time", "t", "use the field time_limit"},
    OwnOption{"export", "", "use the field environment"},
    OwnOption{"export-file", "", "use the field environment"},
    OwnOption{"ntasks", "n", "use the field workers"},
    OwnOption{"ntasks-per-node", "", "use the field workers"},
    OwnOption{"cpus-per-task", "c", "use the field threads"},
    OwnOption{"array", "a", "each job is one of Slurm's"},
    OwnOption{"wait", "W", "use `lockstep jobs wait`"},
    OwnOption{"output", "o", diary_instead},
    OwnOption{"error", "e", diary_instead},
    OwnOption{"input", "i", "a job has no input"},
    OwnOption{"wrap", "", "the job is the script"},
    OwnOption{"clusters", "M", "name its login node in the field login"},
    OwnOption{"job-name", "J", always_instead},
    OwnOption{"open-mode", "", always_instead},
    OwnOption{"parsable", "", always_instead},
    OwnOption{"requeue", "", always_instead},
    OwnOption{"no-requeue", "", always_instead},
    OwnOption{"no-kill", "k", always_instead},
    OwnOption{"signal", "", always_instead},
    OwnOption{"test-only", "", question_instead},
    OwnOption{"help", "h", question_instead},
    OwnOption{"usage", "", question_instead},
    OwnOption{"version", "V", question_instead}};
// Letters of sbatch without a value: other letters may follow in the same word.
constexpr std::string_view letters_alone = "HhIkOQsuVvW";

// Whether a word gives an own option. sbatch takes the beginning of a long name for the whole.
bool gives_option(const std::string& word, const OwnOption& option) {
  if (word.starts_with("--")) {
    return std::string_view(option.name).starts_with(word.substr(2, word.find('=') - 2));
  }
  for (size_t i = 1; i < word.size(); ++i) {
    if (word[i] == *option.letter) return true;
    if (letters_alone.find(word[i]) == std::string_view::npos) return false;
  }
  return false;
}

// The script holds options in lines, where sbatch divides words, joins what is quoted, and takes
// what follows # for a comment.
bool is_one_word(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isspace(c) != 0 || std::iscntrl(c) != 0 ||
           std::string_view("\"'\\#").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

void check_options(const ClusterProfile& profile, const std::string& where) {
  for (const std::string& option : profile.options) {
    if (option.size() < 2 || !option.starts_with("-") || option == "--") {
      refuse_field(where, "options", "\"" + printable(option) + "\" is not an option of sbatch",
                   "for example --mem=4G");
    }
    if (!is_one_word(option)) {
      refuse_field(where, "options", "\"" + printable(option) + "\" is more than one word",
                   "give each option as one word without quotes, backslashes and #, such as "
                   "--mem=4G");
    }
    for (const OwnOption& own : own_options) {
      if (!gives_option(option, own)) continue;
      const std::string name = std::string("--") + own.name;
      const bool whole = option == name || option.starts_with(name + "=");
      refuse_field(where, "options",
                   "\"" + option + "\"" + (whole ? "" : ", for sbatch " + name + ",") +
                       " is set by lockstep itself",
                   own.instead);
    }
  }
}

// A word of a command line that begins with "-" would be an option.
bool is_plain_word(const std::string& text) {
  return !text.starts_with("-") && std::none_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isspace(c) != 0 || std::iscntrl(c) != 0;
  });
}

void check_words(const ClusterProfile& profile, const std::string& where) {
  for (const auto& [field, value] :
       {std::pair<const char*, const std::string&>{"login", profile.login},
        {"partition", profile.partition},
        {"time_limit", profile.time_limit},
        {"address", profile.address},
        {"ports", profile.ports}}) {
    if (!is_plain_word(value))
      refuse_field(where, field, "\"" + value + "\" is not a single word", "");
  }
}

std::optional<int> port_of(const std::string& text) {
  int port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || at != end || port < 1 || port > 65535) return std::nullopt;
  return port;
}

void check_ports(const ClusterProfile& profile, const std::string& where) {
  if (profile.ports.empty()) return;
  const size_t dash = profile.ports.find('-');
  const auto first = port_of(profile.ports.substr(0, dash));
  const auto last = dash == std::string::npos ? first : port_of(profile.ports.substr(dash + 1));
  if (!first || !last || *last < *first) {
    refuse_field(where, "ports", "\"" + profile.ports + "\" is not a range of ports",
                 "for example 20000-20100");
  }
}

void check_time_limit(const ClusterProfile& profile, const std::string& where) {
  const std::string& text = profile.time_limit;
  if (text.empty() || text == "UNLIMITED" || text == "INFINITE") return;
  const bool digits_between = std::isdigit(static_cast<unsigned char>(text.front())) != 0 &&
                              std::isdigit(static_cast<unsigned char>(text.back())) != 0 &&
                              text.find_first_not_of("0123456789:-") == std::string::npos;
  if (!digits_between) {
    refuse_field(where, "time_limit", "\"" + text + "\" is not a time",
                 "minutes (90), 1:30:00, or days and hours (2-12)");
  }
}

void check_paths(const ClusterProfile& profile, const std::string& where) {
  const auto no_lines = [](const std::string& text) {
    return text.find_first_of("\n\r") == std::string::npos;
  };
  if (!profile.folder.empty() && !(profile.folder.starts_with('/') && no_lines(profile.folder))) {
    refuse_field(where, "folder", "\"" + profile.folder + "\" is not an absolute path",
                 "the folder lies on the cluster: begin it with /");
  }
  const std::string& executable = profile.executable;
  if (executable != "shared" && executable != "shipped" &&
      !(executable.starts_with('/') && no_lines(executable))) {
    refuse_field(where, "executable",
                 "\"" + executable + "\" is neither shared nor shipped nor an absolute path",
                 "for example /shared/bin/lockstep");
  }
  for (const std::string& file : profile.attach) {
    if (file.empty() || !no_lines(file)) {
      refuse_field(where, "attach", "\"" + file + "\" names no file", "");
    }
  }
}

}  // namespace

void check_cluster_profile(const ClusterProfile& profile, const std::string& where) {
  check_options(profile, where);
  check_environment(profile, where);
  check_words(profile, where);
  check_ports(profile, where);
  check_time_limit(profile, where);
  check_paths(profile, where);
  profile.workers_per_node();
}

}  // namespace lockstep
