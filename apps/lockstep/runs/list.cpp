// The list of runs: a table that fits the terminal.
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "apps/lockstep/command.h"
#include "apps/lockstep/runs/runs.h"
#include "lockstep/base/text.h"
#include "lockstep/base/utc_time.h"

namespace lockstep::command {
namespace {

constexpr size_t gap = 2;  // between columns
constexpr size_t shortest_name = 24;

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string part = text.substr(at, end - at);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!part.empty()) parts.push_back(part);
    at = end + 1;
  }
  return parts;
}

size_t line_width() {
  constexpr int without_terminal = 80;
  return static_cast<size_t>(::isatty(STDOUT_FILENO) == 1 ? output_width() : without_terminal);
}

// "2026-11-27T20:35:12Z" as `ls -l` writes times: "Nov 27 20:35", or of another year "Nov 27 2026".
std::string short_time(const std::string& time) {
  const char* const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  struct tm parts = {};
  if (::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return time;
  const bool this_year = time.substr(0, 4) == utc_now().substr(0, 4);
  return std::string(months[parts.tm_mon]) + " " + time.substr(8, 2) + " " +
         (this_year ? time.substr(11, 5) : " " + time.substr(0, 4));
}

// Names of runs, each with as much of its folder as tells it from the others.
std::vector<std::string> distinct_names(const std::vector<StoredRun>& runs) {
  std::vector<std::string> names(runs.size());
  std::vector<int> longer(runs.size(), 0);
  for (bool again = true; again;) {
    again = false;
    std::map<std::string, std::vector<size_t>> same;
    for (size_t i = 0; i < runs.size(); ++i) {
      names[i] = run_name(runs[i], longer[i]);
      same[names[i]].push_back(i);
    }
    for (const auto& [name, these] : same) {
      if (these.size() < 2) continue;
      for (const size_t i : these) {
        ++longer[i];
        again = again || run_name(runs[i], longer[i]) != name;
      }
    }
  }
  return names;
}

// Leaves the middle out. Counts code points of UTF-8.
std::string shortened(const std::string& text, size_t width) {
  if (columns_in(text) <= width) return text;
  std::vector<size_t> begins;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) begins.push_back(i);
  }
  const size_t end = (width - 1) / 2, front = width - 1 - end;
  return text.substr(0, begins[front]) + "\u2026" + text.substr(begins[begins.size() - end]);
}

// All columns, in order, and how much each matters: the first ones stay in a narrow terminal.
struct Columns {
  std::vector<std::string> fields, by_importance;
};

Columns columns_for(const std::vector<StoredRun>& runs, const std::string& sorted_by) {
  const auto any = [&](const std::string& field) {
    return std::any_of(runs.begin(), runs.end(),
                       [&](const StoredRun& run) { return !values_of(run, field).empty(); });
  };
  Columns all{{"number", "run", "state", "epoch", "created"}, {"number", "run", "state"}};
  const auto add = [](std::vector<std::string>& to, const std::string& field) {
    if (std::find(to.begin(), to.end(), field) == to.end()) to.push_back(field);
  };
  if (!sorted_by.empty()) add(all.by_importance, sorted_by);
  add(all.by_importance, "epoch");
  for (const char* field :
       {"validation.loss", "validation.accuracy", "validation.accuracy.best", "test.accuracy"}) {
    if (any(field)) all.fields.emplace_back(field);
  }
  if (any("tag")) all.fields.emplace_back("tag");
  if (!sorted_by.empty()) add(all.fields, sorted_by);
  all.fields.emplace_back("folder");
  for (const char* field : {"validation.accuracy.best", "created", "tag", "validation.loss",
                            "validation.accuracy", "test.accuracy", "folder"}) {
    if (std::find(all.fields.begin(), all.fields.end(), field) != all.fields.end()) {
      add(all.by_importance, field);
    }
  }
  return all;
}

// Prints as many columns as fit.
void print_fitting(const std::vector<StoredRun>& runs, const std::string& sorted_by) {
  const Columns columns = columns_for(runs, sorted_by);
  const std::vector<std::string> names = distinct_names(runs);
  const auto cell = [&](size_t i, const std::string& field) {
    if (field == "run") return printable(names[i]);
    std::string text = printable(short_text(values_of(runs[i], field)));
    if (text.empty()) return std::string("-");
    return field == "created" ? short_time(text) : text;
  };
  std::map<std::string, size_t> widths;
  for (const std::string& field : columns.fields) {
    widths[field] = columns_in(field);
    for (size_t i = 0; i < runs.size(); ++i) {
      widths[field] = std::max(widths[field], columns_in(cell(i, field)));
    }
  }
  const size_t room = line_width();
  // A long name gives way to what tells how a run stands.
  size_t used = 0;
  constexpr size_t beside_name = 5;  // number, state, epoch and a score, and the name itself
  for (size_t i = 0; i < std::min(beside_name, columns.by_importance.size()); ++i) {
    const std::string& field = columns.by_importance[i];
    if (field != "run") used += widths[field] + gap;
  }
  widths["run"] =
      std::min(widths["run"], std::max(shortest_name, room > used ? room - used : size_t{0}));
  used = 0;
  std::vector<std::string> shown, left;
  for (const std::string& field : columns.by_importance) {
    const size_t more = widths[field] + (used > 0 ? gap : 0);
    const bool fits = used + more <= room || field == "run" || field == "state";
    (fits ? shown : left).push_back(field);
    if (fits) used += more;
  }
  TextTable table;
  for (const std::string& field : columns.fields) {
    if (std::find(shown.begin(), shown.end(), field) != shown.end()) table.head.push_back(field);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const std::string& field : table.head) {
      row.push_back(field == "run" ? shortened(cell(i, field), widths["run"]) : cell(i, field));
    }
  }
  print(aligned(table));
  if (left.empty()) return;
  std::string text;
  for (const std::string& field : left) text += (text.empty() ? "" : ", ") + field;
  print_note("not shown for want of width: " + text + " (--columns chooses, --csv has all digits)");
}

}  // namespace

int list_runs(const RunsArguments& a) {
  RunStore store = open_store();
  std::vector<StoredRun> runs = chosen_runs(store, a);
  if (!a.sort.empty()) {
    require_field(runs, a.sort);
    // Runs without the field are last in any order.
    std::stable_sort(runs.begin(), runs.end(), [&](const StoredRun& x, const StoredRun& y) {
      const auto left = values_of(x, a.sort), right = values_of(y, a.sort);
      if (left.empty() || right.empty()) return !left.empty();
      return a.reverse ? right < left : left < right;
    });
  } else if (a.reverse) {
    std::reverse(runs.begin(), runs.end());
  }
  if (runs.empty() && !a.json && !a.csv) {
    print(a.where.empty() ? "no runs\n" : "no run fits the filter\n");
    return 0;
  }
  if (!a.columns.empty()) {
    const std::vector<std::string> fields = split_at_commas(a.columns);
    for (const std::string& field : fields) require_field(runs, field);
    print_runs(runs, fields, a);
  } else if (a.json || a.csv) {
    std::vector<std::string> fields = columns_for(runs, a.sort).fields;
    std::erase(fields, "name");  // that of --sort
    fields.insert(fields.begin() + 2, "name");
    print_runs(runs, fields, a);
  } else {
    print_fitting(runs, a.sort);
  }
  return 0;
}

}  // namespace lockstep::command
