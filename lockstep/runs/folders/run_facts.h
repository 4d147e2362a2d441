// What the folder of a run says about it in addition to the job and its results: run.json, which
// the run writes, and notes.json, which its user writes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/os/file.h"

namespace lockstep {

inline constexpr const char* run_facts_name = "run.json";
inline constexpr const char* run_notes_name = "notes.json";

// A value of a metric over some data: "validation.loss", "test.accuracy", "test.f1".
struct RunScore {
  std::string name;
  double value = 0;
};

// Where, when and on what a run was trained. Texts are "" and numbers 0 if they are not known.
struct RunFacts {
  std::string id;       // 32 hexadecimal digits, made at the first start, kept by copies and moves
  std::string created;  // time of the first start, "2026-11-23T20:23:14Z"
  std::string address;  // "s3://bucket/run" of a run in a store, where its files are; else ""
  std::string host;     // of the last start, as are all that follow
  std::string version;  // of Lockstep
  std::string device;   // "cpu", "cuda:0"
  int threads = 0;      // for each worker, if there are workers
  int workers = 0;      // worker processes
  int64_t iterations = 0;  // planned
  int64_t iterations_per_epoch = 0;
  int64_t first_iteration = 0;  // of the last start
  int64_t observations = 0, validation_observations = 0;
  double seconds = 0;  // of training, in the last process
  std::string data;    // digest of the training listing, with contents
  std::string sweep;   // the sweep that it is a trial of
  int64_t trial = 0;   // its number there, from 1
  // Values of the job's variables, or of the sweep's parameters, as JSON text: 0.05, "adam", true.
  std::vector<std::pair<std::string, std::string>> variables;
  // The options that the job file or a setting names ("training.seed"); none if it is not known.
  std::vector<std::string> given;
  std::vector<std::pair<std::string, std::string>> fingerprint;  // see fingerprint.h
  std::vector<RunScore> scores;                                  // of the finished network
};

// What users say about a run.
struct RunNotes {
  std::vector<std::string> tags;  // sorted, each once
  std::string note;
  bool archived = false;
  friend bool operator==(const RunNotes&, const RunNotes&) = default;
};

// 32 random hexadecimal digits.
std::string make_run_id();

// Read what a folder contains. Missing, damaged and later files give empty values. Thread-safe.
RunFacts read_run_facts(FileSystem& files, const std::string& folder);
RunNotes read_run_notes(FileSystem& files, const std::string& folder);
// Write it atomically. Throw FileError.
void write_run_facts(FileSystem& files, const std::string& folder, const RunFacts& facts);
void write_run_notes(FileSystem& files, const std::string& folder, const RunNotes& notes);

// For storage elsewhere: the contents of run.json and of notes.json. Throws
// nlohmann::json::exception for fields of other types; fields that are missing stay empty.
nlohmann::ordered_json to_json(const RunFacts& facts);
RunFacts run_facts_of(const nlohmann::ordered_json& json);
std::string to_text(const RunNotes& notes);
RunNotes run_notes_of(const std::string& text);

}  // namespace lockstep
