// Parts of `lockstep runs`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/runs/store/run_filter.h"
#include "lockstep/runs/store/run_store.h"

namespace lockstep::command {

struct RunsArguments {
  std::string action;
  std::vector<std::string> runs;  // numbers, names or folders
  std::string where, sort, columns;
  std::vector<std::string> add, remove;  // tags
  std::optional<std::string> text;       // of a note
  std::string out;
  bool all = false, json = false, csv = false, undo = false, files = false, reverse = false;
};

// A table for people, or the same as CSV.
struct TextTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};
std::string aligned(const TextTable& table);
size_t columns_in(const std::string& text);  // of a terminal, for UTF-8
std::string csv(const TextTable& table);

// The open store of the user. Throws InvalidArgument if the environment names no folder for it.
RunStore open_store();
std::string store_folder();

// The runs that the arguments name, and of these those that the filter keeps. Without names: all
// that are not archived, or with --all all. States of runs that have ended since are brought up to
// date.
std::vector<StoredRun> chosen_runs(RunStore& store, const RunsArguments& a);

// A short form of a field's values, for tables.
std::string short_text(const std::vector<RunValue>& values);
// Prints runs with one column for each field. CSV and JSON have all digits.
void print_runs(const std::vector<StoredRun>& runs, const std::vector<std::string>& fields,
                const RunsArguments& a);

int list_runs(const RunsArguments& a);
int show_runs(const RunsArguments& a);
int compare_stored_runs(const RunsArguments& a);
int export_runs(const RunsArguments& a);
int tag_runs(const RunsArguments& a);
int note_runs(const RunsArguments& a);
int archive_runs(const RunsArguments& a);
int remove_runs(const RunsArguments& a);
int rebuild_runs(const RunsArguments& a);

}  // namespace lockstep::command
