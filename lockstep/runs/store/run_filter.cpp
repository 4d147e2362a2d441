#include "lockstep/runs/store/run_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/suggest.h"

namespace lockstep {
namespace {

const std::vector<std::string> own_fields{
    "number",   "run",     "name",    "state",   "reason",    "folder", "note", "tag",
    "archived", "created", "ended",   "seconds", "iteration", "epoch",  "host", "version",
    "device",   "threads", "workers", "data",    "receipt",   "sweep",  "trial"};

RunValue value_of_json(const std::string& text) {
  const auto value = parse_json_or_discard<nlohmann::json>(text);
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return text;
}

std::vector<RunValue> own_value(const StoredRun& run, const std::string& field) {
  const RunFacts& f = run.facts;
  const auto number = [](auto n) {
    return std::vector<RunValue>{RunValue(static_cast<double>(n))};
  };
  const auto text = [](const std::string& t) {
    return t.empty() ? std::vector<RunValue>{} : std::vector<RunValue>{t};
  };
  if (field == "number") return number(run.number);
  if (field == "run") return text(run_name(run));
  if (field == "name") return text(run.name);
  if (field == "state") return text(to_string(run.state.status));
  if (field == "reason") return text(run.state.reason);
  if (field == "folder") return text(run.folder);
  if (field == "note") return text(run.notes.note);
  if (field == "tag") return {run.notes.tags.begin(), run.notes.tags.end()};
  if (field == "archived") return number(run.notes.archived ? 1 : 0);
  if (field == "created") return text(f.created);
  if (field == "ended") {
    return run.state.status == RunStatus::running ? std::vector<RunValue>{} : text(run.state.time);
  }
  if (field == "seconds") return f.seconds > 0 ? number(f.seconds) : std::vector<RunValue>{};
  if (field == "iteration") return number(run.iteration);
  if (field == "epoch") return number(run.epoch);
  if (field == "host") return text(f.host);
  if (field == "version") return text(f.version);
  if (field == "device") return text(f.device);
  if (field == "threads") return number(f.threads);
  if (field == "workers") return number(f.workers);
  if (field == "data") return text(f.data);
  if (field == "receipt") return text(run.receipt);
  if (field == "sweep") return text(f.sweep);
  return f.trial > 0 ? number(f.trial) : std::vector<RunValue>{};
}

}  // namespace

std::vector<RunValue> values_of(const StoredRun& run, const std::string& field) {
  for (const auto& [name, value] : run.facts.variables) {
    if (name == field || "variables." + name == field) return {value_of_json(value)};
  }
  if (std::find(own_fields.begin(), own_fields.end(), field) != own_fields.end()) {
    return own_value(run, field);
  }
  for (const MetricSummary& m : run.metrics) {
    if (field == m.name || field == m.name + ".last") return {m.last};
    if (field == m.name + ".best") return {m.best};
  }
  const std::string* found = nullptr;
  std::string first;
  for (const auto& [name, value] : run.options) {
    if (name == field) return {value_of_json(value)};
    if (name.starts_with("network.")) continue;  // many layers have the same options
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || name.compare(dot + 1, std::string::npos, field) != 0) continue;
    if (found != nullptr && *found != value) {
      throw InvalidArgument(
          fmt::format("[filter] `{}` is the name of {} and of {}", field, first, name),
          "write the name with its table");
    }
    found = &value;
    first = name;
  }
  if (found == nullptr) return {};
  return {value_of_json(*found)};
}

std::string text_of(const std::vector<RunValue>& values) {
  std::string text;
  for (const RunValue& value : values) {
    if (!text.empty()) text += ' ';
    const double* number = std::get_if<double>(&value);
    text += number != nullptr ? fmt::format("{}", *number) : std::get<std::string>(value);
  }
  return text;
}

namespace {

// `alone`: the name is not part of a comparison. It may have been meant as text.
void require(const std::vector<StoredRun>& runs, const std::string& field, bool alone) {
  if (runs.empty()) return;
  if (std::find(own_fields.begin(), own_fields.end(), field) != own_fields.end()) return;
  std::set<std::string> known(own_fields.begin(), own_fields.end());
  for (const StoredRun& run : runs) {
    if (!values_of(run, field).empty()) return;
    for (const auto& [name, unused] : run.facts.variables) known.insert(name);
    for (const auto& [name, unused] : run.options) {
      if (name.starts_with("network.")) continue;
      known.insert(name);
      known.insert(name.substr(name.rfind('.') + 1));
    }
    for (const MetricSummary& m : run.metrics) known.insert(m.name);
  }
  const std::vector<std::string> names(known.begin(), known.end());
  const std::string nearest = nearest_name(field, names);
  std::string hint = nearest.empty() ? "`lockstep runs show RUN` shows the fields of a run"
                                     : "did you mean `" + nearest + "`?";
  if (alone) hint += (nearest.empty() ? "; for" : " For") + std::string(" text: name ~ ") + field;
  throw InvalidArgument("[filter] no run has a field `" + field + "`", hint);
}

}  // namespace

void require_field(const std::vector<StoredRun>& runs, const std::string& field) {
  require(runs, field, false);
}

struct RunFilter::Node {
  enum class Kind { all, any, none, compare, has };
  Kind kind = Kind::has;
  std::vector<std::unique_ptr<Node>> parts;
  std::string field, sign;
  RunValue value;

  bool holds(const StoredRun& run) const {
    const auto each = [&](const auto& part) { return part->holds(run); };
    switch (kind) {
      case Kind::all:
        return std::all_of(parts.begin(), parts.end(), each);
      case Kind::any:
        return std::any_of(parts.begin(), parts.end(), each);
      case Kind::none:
        return !parts.front()->holds(run);
      case Kind::has:
        return !values_of(run, field).empty();
      case Kind::compare:
        break;
    }
    const std::vector<RunValue> values = values_of(run, field);
    // A run has many tags, or none: != means that none is equal.
    if (sign == "!=") {
      const bool equal = std::any_of(values.begin(), values.end(),
                                     [&](const RunValue& v) { return compare(v, "="); });
      return !equal && (!values.empty() || field == "tag");
    }
    return std::any_of(values.begin(), values.end(),
                       [&](const RunValue& v) { return compare(v, sign); });
  }

  // Each with whether it stands alone.
  void add_fields(std::map<std::string, bool>& fields) const {
    if (!field.empty()) fields.emplace(field, kind == Kind::has);
    for (const auto& part : parts) part->add_fields(fields);
  }

 private:
  template <class T>
  static bool ordered(const T& a, const std::string& sign, const T& b) {
    if (sign == "=") return a == b;
    if (sign == "<") return a < b;
    if (sign == "<=") return a <= b;
    if (sign == ">") return a > b;
    return a >= b;
  }
  bool compare(const RunValue& found, const std::string& how) const {
    if (how == "~") return text_of({found}).find(text_of({value})) != std::string::npos;
    const double *a = std::get_if<double>(&found), *b = std::get_if<double>(&value);
    if (a != nullptr && b != nullptr) return ordered(*a, how, *b);
    return ordered(text_of({found}), how, text_of({value}));
  }
};

namespace {

using Node = RunFilter::Node;

class FilterParser {
 public:
  explicit FilterParser(const std::string& text) : text_(text) {}

  std::unique_ptr<Node> parse() {
    auto node = either(0);
    if (!peek().empty()) fail("`and`, `or` or the end is expected");
    return node;
  }

 private:
  static constexpr int most_depth = 100;

  // The next word, sign or parenthesis; "" at the end.
  std::string peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (at_ == text_.size()) return end_ = at_, "";
    const char c = text_[at_];
    quoted_ = c == '"' || c == '\'';
    if (quoted_) {
      const size_t close = text_.find(c, at_ + 1);
      if (close == std::string::npos) fail("the quote is not closed");
      end_ = close + 1;
      return text_.substr(at_ + 1, close - at_ - 1);
    }
    end_ = at_ + 1;
    if (std::string("()~").find(c) != std::string::npos) return std::string(1, c);
    if (is_sign(c)) {
      if (end_ < text_.size() && text_[end_] == '=') ++end_;
      return text_.substr(at_, end_ - at_);
    }
    while (end_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[end_])) == 0 &&
           !is_sign(text_[end_]) && std::string("()~\"'").find(text_[end_]) == std::string::npos) {
      ++end_;
    }
    return text_.substr(at_, end_ - at_);
  }
  static bool is_sign(char c) { return c == '=' || c == '<' || c == '>' || c == '!'; }
  bool take(const std::string& word) {
    if (peek() != word || quoted_) return false;
    at_ = end_;
    return true;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InvalidArgument(fmt::format("[filter] {} at character {} of: {}", what, at_ + 1, text_),
                          "such as: validation.loss < 0.5 and depth = 2");
  }

  std::unique_ptr<Node> either(int depth) {
    if (depth > most_depth) fail("too many parentheses");
    return joined(Node::Kind::any, "or", [&] { return both(depth); });
  }
  std::unique_ptr<Node> both(int depth) {
    return joined(Node::Kind::all, "and", [&] { return one(depth); });
  }
  template <class Part>
  std::unique_ptr<Node> joined(Node::Kind kind, const char* word, Part part) {
    auto first = part();
    if (!take(word)) return first;
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->parts.push_back(std::move(first));
    do node->parts.push_back(part());
    while (take(word));
    return node;
  }
  std::unique_ptr<Node> one(int depth) {
    if (depth > most_depth) fail("too many parentheses");
    if (take("not")) {
      auto node = std::make_unique<Node>();
      node->kind = Node::Kind::none;
      node->parts.push_back(one(depth + 1));
      return node;
    }
    if (take("(")) {
      auto node = either(depth + 1);
      if (!take(")")) fail("`)` is expected");
      return node;
    }
    auto node = std::make_unique<Node>();
    node->field = peek();
    const bool word = !node->field.empty() && !quoted_ && !is_sign(node->field[0]) &&
                      std::string("()~").find(node->field[0]) == std::string::npos &&
                      node->field != "and" && node->field != "or";
    if (!word) fail("the name of a field is expected");
    at_ = end_;
    std::string sign = peek();
    if (quoted_) sign.clear();
    if (sign == "==") sign = "=";
    const char* signs[] = {"=", "!=", "<", "<=", ">", ">=", "~"};
    if (std::find(std::begin(signs), std::end(signs), sign) == std::end(signs)) {
      if (!sign.empty() && is_sign(sign[0])) fail("`" + sign + "` is not a comparison");
      return node;
    }
    at_ = end_;
    node->kind = Node::Kind::compare;
    node->sign = sign;
    const std::string value = peek();
    const bool empty = value.empty() && !quoted_;
    if (empty || at_ == text_.size() ||
        (!quoted_ &&
         (is_sign(value[0]) || std::string("()~").find(value[0]) != std::string::npos))) {
      fail("a number or a text is expected");
    }
    node->value = quoted_ ? RunValue(value) : of_word(value);
    at_ = end_;
    return node;
  }
  static RunValue of_word(const std::string& word) {
    if (word == "true") return 1.0;
    if (word == "false") return 0.0;
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error == std::errc() && end == word.data() + word.size()) return number;
    return word;
  }

  const std::string& text_;
  size_t at_ = 0, end_ = 0;
  bool quoted_ = false;
};

}  // namespace

RunFilter::RunFilter(const std::string& text) : root_(FilterParser(text).parse()) {}
RunFilter::~RunFilter() = default;

std::vector<StoredRun> RunFilter::of(const std::vector<StoredRun>& runs) const {
  std::map<std::string, bool> fields;
  root_->add_fields(fields);
  for (const auto& [field, alone] : fields) require(runs, field, alone);
  std::vector<StoredRun> kept;
  for (const StoredRun& run : runs) {
    if (root_->holds(run)) kept.push_back(run);
  }
  return kept;
}

}  // namespace lockstep
