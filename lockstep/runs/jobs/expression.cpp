#include "lockstep/runs/jobs/expression.h"

#include <muParser.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/suggest.h"

namespace lockstep {
namespace {

constexpr size_t longest_expression = 1000;
constexpr size_t most_variables = 1000;

double round_away(double x) { return std::round(x); }
double square_root(double x) { return std::sqrt(x); }
double round_down(double x) { return std::floor(x); }
double round_up(double x) { return std::ceil(x); }
double absolute(double x) { return std::fabs(x); }
double natural_log(double x) { return std::log(x); }
double exponential(double x) { return std::exp(x); }
double power(double x, double y) { return std::pow(x, y); }
double least(const double* x, int n) { return *std::min_element(x, x + n); }
double greatest(const double* x, int n) { return *std::max_element(x, x + n); }

const std::vector<std::string>& functions() {
  static const std::vector<std::string> names{"abs", "ceil", "exp", "floor", "log",
                                              "max", "min",  "pow", "round", "sqrt"};
  return names;
}

bool is_function(const std::string& name) {
  return std::find(functions().begin(), functions().end(), name) != functions().end();
}

bool begins_word(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool continues_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool is_word(const std::string& name) {
  return !name.empty() && name.size() <= 100 && begins_word(name.front()) &&
         std::all_of(name.begin(), name.end(), continues_word);
}

// The words in an expression that are not function names.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    if (!continues_word(text[i]) && text[i] != '.') {
      ++i;
      continue;
    }
    const size_t begin = i;  // a number such as 1e5 is not a word
    while (i < text.size() && (continues_word(text[i]) || text[i] == '.')) ++i;
    std::string word = text.substr(begin, i - begin);
    if (begins_word(word.front()) && !is_function(word)) words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

double Variables::evaluate(const std::string& text, const std::string& where) const {
  const auto refuse = [&](const std::string& why, const std::string& hint = {}) {
    constexpr size_t shown = 100;
    throw InvalidArgument("[" + where + "] the expression \"" + text.substr(0, shown) +
                              (text.size() > shown ? "..." : "") + "\" " + why,
                          hint);
  };
  if (text.size() > longest_expression) {
    refuse("is longer than " + std::to_string(longest_expression) + " characters");
  }
  std::vector<std::string> known = functions();
  for (const auto& [name, value] : values_) known.push_back(name);
  for (const std::string& word : words_of(text)) {
    if (!values_.contains(word))
      refuse("uses the unknown name `" + word + "`", suggest(word, known));
  }
  double value = 0;
  try {
    mu::Parser parser;
    parser.ClearFun();
    parser.ClearConst();
    parser.DefineFun("round", round_away);
    parser.DefineFun("sqrt", square_root);
    parser.DefineFun("floor", round_down);
    parser.DefineFun("ceil", round_up);
    parser.DefineFun("abs", absolute);
    parser.DefineFun("log", natural_log);
    parser.DefineFun("exp", exponential);
    parser.DefineFun("pow", power);
    parser.DefineFun("min", least);
    parser.DefineFun("max", greatest);
    for (const auto& [name, number] : values_) parser.DefineConst(name, number);
    parser.SetExpr(text);
    value = parser.Eval();
    if (parser.GetNumResults() != 1) refuse("gives more than one number");
  } catch (const mu::Parser::exception_type& error) {
    std::string why = error.GetMsg();
    while (!why.empty() && (why.back() == '.' || why.back() == '\n')) why.pop_back();
    refuse("cannot be evaluated: " + why);
  }
  if (!std::isfinite(value)) {
    const std::string number = std::isnan(value) ? "not a number" : "infinite";
    refuse("gives " + number);
  }
  return value;
}

Variables::Variables(const std::map<std::string, Definition>& definitions) {
  if (definitions.size() > most_variables) {
    throw InvalidArgument("[variables] there are " + std::to_string(definitions.size()) +
                          ", at most " + std::to_string(most_variables) + " are allowed");
  }
  std::vector<std::string> names;
  for (const auto& [name, unused] : definitions) {
    if (!is_word(name) || is_function(name)) {
      throw InvalidArgument(
          "[variables] `" + name + "` is not a valid name for a variable",
          is_function(name) ? "it is the name of a function" : "letters, digits and _ may be used");
    }
    names.push_back(name);
  }
  std::vector<std::string> waiting;  // the variables whose definitions are being resolved
  const auto resolve = [&](const auto& self, const std::string& name) -> void {
    if (values_.contains(name)) return;
    const std::string where = "variables." + name;
    const auto again = std::find(waiting.begin(), waiting.end(), name);
    if (again != waiting.end()) {
      std::string circle;
      for (auto i = again; i != waiting.end(); ++i) circle += *i + " -> ";
      throw InvalidArgument("[" + where + "] is defined in terms of itself: " + circle + name);
    }
    waiting.push_back(name);
    const Definition& definition = definitions.at(name);
    double value = 0;
    if (const auto* text = std::get_if<std::string>(&definition)) {
      for (const std::string& word : words_of(*text)) {
        if (definitions.contains(word)) {
          self(self, word);
        } else {
          throw InvalidArgument("[" + where + "] uses the unknown name `" + word + "`",
                                suggest(word, names));
        }
      }
      value = evaluate(*text, where);
    } else {
      value = std::get<double>(definition);
      if (!std::isfinite(value)) throw InvalidArgument("[" + where + "] is not a finite number");
    }
    waiting.pop_back();
    values_[name] = value;
  };
  for (const std::string& name : names) resolve(resolve, name);
}

}  // namespace lockstep
