// The manual page lockstep(1), generated from the definitions of the command line.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "apps/lockstep/command.h"

namespace lockstep::command {
namespace {

// Escapes text for roff: hyphens that can be copied, and no line that begins a request.
std::string plain(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    line_begins = c == '\n';
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain(text) + "\\fR"; }

std::string paragraphs(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    out += ".PP\n" + plain(text.substr(at, end - at)) + "\n";
    at = end + 2;
  }
  return out;
}

std::string entry(const std::string& term, const std::string& meaning) {
  return ".TP\n" + term + "\n" + meaning + "\n";
}

std::string option_entry(const Argument& a) {
  std::string term;
  for (const std::string& name : a.names) term += (term.empty() ? "" : ", ") + bold(name);
  if (!a.value.empty()) term += " " + italic(a.value);
  return entry(term, plain(a.help));
}

std::string synopsis(const Definition& d) {
  std::string line = bold("lockstep " + d.name) + " [" + italic("options") + "]";
  for (const Argument& a : d.positionals) {
    const std::string name = italic(a.value + (a.many ? "..." : ""));
    line += a.required ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string manual(const Commands& commands) {
  const std::string purpose = commands.purpose();
  std::string text = ".\\\" Made by `lockstep man`.\n.TH LOCKSTEP 1 \"\" \"lockstep " +
                     std::string(LOCKSTEP_VERSION) + "\" \"User Commands\"\n";
  text += ".SH NAME\nlockstep \\- train deep networks in parallel\n.SH SYNOPSIS\n";
  for (const Definition& d : commands.definitions()) text += synopsis(d) + "\n.br\n";
  for (const Argument& a : commands.global_options()) {
    text += bold("lockstep " + a.names.back()) + "\n.br\n";
  }
  text += ".SH DESCRIPTION\n" + plain(purpose) +
          "\nOne job file describes a network, its data and its training; " +
          bold("lockstep reference") + " lists all its fields.\n";
  text += ".SH COMMANDS\n";
  for (const Definition& d : commands.definitions()) {
    text += ".SS " + synopsis(d) + "\n" + plain(d.purpose) + ".\n" + paragraphs(d.details);
    for (const Argument& a : d.positionals) text += entry(italic(a.value), plain(a.help));
    for (const Argument& a : d.options) text += option_entry(a);
  }
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_codes())
    text += entry(std::to_string(code), plain(meaning));
  text += ".SH ENVIRONMENT\n";
  for (const auto& [name, meaning] : environment()) text += entry(bold(name), plain(meaning));
  text += ".SH EXAMPLES\n";
  for (const Definition& d : commands.definitions()) {
    for (const auto& [line, meaning] : d.examples) text += entry(bold(line), plain(meaning));
  }
  return text;
}

}  // namespace

void add_man(Commands& commands) {
  commands.add("man", "The manual page, as roff",
               "It is part of an installed Lockstep: `man lockstep`.",
               {{"lockstep man | man -l -", "read it"}}, [&commands] {
                 print(manual(commands));
                 return 0;
               });
}

}  // namespace lockstep::command
