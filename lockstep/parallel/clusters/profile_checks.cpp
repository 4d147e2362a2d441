#include "lockstep/parallel/clusters/profile_checks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"

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
                   "\"" + name.substr(0, 40) + "\" sets no variable in one line",
                   "for example NCCL_SOCKET_IFNAME=ib0");
    }
    if (names_credential(name)) {
      refuse_field(where, "environment",
                   name +
                       " looks like a credential, and Slurm stores the "
                       "variables of jobs where others may read them",
                   "keep credentials in files that the nodes read, such as ~/.aws/credentials");
    }
  }
}

// Options of sbatch that this program sets itself, by what sets them.
struct OwnOption {
  const char *name, *letter, *instead;
};
constexpr std::array own_options{OwnOption{"partition", "p", "use the field partition"},
                                 OwnOption{"nodes", "N", "use the field nodes"},
                                 OwnOption{"time", "t", "use the field time_limit"},
                                 OwnOption{"export", "", "use the field environment"},
                                 OwnOption{"export-file", "", "use the field environment"},
                                 OwnOption{"ntasks", "n", "use the field workers"},
                                 OwnOption{"ntasks-per-node", "", "use the field workers"},
                                 OwnOption{"cpus-per-task", "c", "use the field threads"},
                                 OwnOption{"array", "a", "each job is one of Slurm's"},
                                 OwnOption{"parsable", "", "it is always given"},
                                 OwnOption{"wrap", "", "the job is the script"},
                                 OwnOption{"wait", "W", "use `lockstep jobs wait`"}};

bool is_option(const std::string& text, const OwnOption& option) {
  const std::string name = text.substr(0, text.find('='));
  return name == std::string("--") + option.name ||
         (*option.letter != '\0' && !text.starts_with("--") &&
          text.starts_with(std::string("-") + option.letter));
}

void check_options(const ClusterProfile& profile, const std::string& where) {
  for (const std::string& option : profile.options) {
    const bool plain = option.size() > 1 && option.starts_with("-") &&
                       option.find_first_of("\n\r") == std::string::npos;
    if (!plain) {
      refuse_field(where, "options", "\"" + option + "\" is no option of sbatch",
                   "for example --mem=4G");
    }
    for (const OwnOption& own : own_options) {
      if (is_option(option, own)) {
        refuse_field(where, "options", "\"" + option + "\" is set by lockstep itself", own.instead);
      }
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
      refuse_field(where, field, "\"" + value + "\" is no single word", "");
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
    refuse_field(where, "ports", "\"" + profile.ports + "\" is no range of ports",
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
    refuse_field(where, "time_limit", "\"" + text + "\" is no time",
                 "minutes (90), 1:30:00, or days and hours (2-12)");
  }
}

void check_paths(const ClusterProfile& profile, const std::string& where) {
  const auto no_lines = [](const std::string& text) {
    return text.find_first_of("\n\r") == std::string::npos;
  };
  if (!profile.folder.empty() && !(profile.folder.starts_with('/') && no_lines(profile.folder))) {
    refuse_field(where, "folder", "\"" + profile.folder + "\" is no absolute path",
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

bool names_credential(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* part : {"SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "ACCESS_KEY",
                           "PRIVATE_KEY", "API_KEY"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  std::istringstream words(name);
  for (std::string word; std::getline(words, word, '_');) {
    // Not TOKENIZERS_PARALLELISM.
    if (word == "TOKEN" || word == "TOKENS") return true;
  }
  return false;
}

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
