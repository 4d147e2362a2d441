// How a process on another host joins a job: the one contract for every starter (ssh, Slurm, MPI,
// Kubernetes). The process gets an address and a key file, asks as a guest of the control channel,
// and receives that it is a member, or the reason why not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/parallel/messages/channel.h"

namespace lockstep {

// The content of a key file. Any process that has it can join the job.
struct JobKey {
  std::string server_key;          // the client's public key
  ChannelKeys guest;               // for members
  std::string server_secret = {};  // for a client that is started with a key file; else ""

  static JobKey fresh();
  std::string text() const;
  // Throws DataError, with `where` in front, for text that is not a key file.
  static JobKey parse(const std::string& text, const std::string& where);
};

// Writes a new file that only this user can read. Throws FileError, also if the file exists.
void write_key_file(const std::string& path, const JobKey& key);
// Reads a key file, or standard input for "-". Throws FileError if it cannot be read or if other
// users can read it, DataError if it is not a key file.
JobKey read_key_file(const std::string& path);

// The question of a process that wants to join. Its layout is the same in all builds, so that a
// process of another build is refused with that reason.
struct JoinRequest {
  static constexpr uint32_t current_version = 1;

  uint32_t version = current_version;
  int64_t index = -1, size = -1;  // among the members; -1: not given
  int64_t pid = 0;
  std::string host, build, processor;

  // Of this process.
  static JoinRequest of_this_process(int64_t index, int64_t size);
  // "process 77 on n2"
  std::string name() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(version, index, size, pid, host, build, processor);
  }
};

struct JoinAnswer {
  std::string refusal;  // "": the process is a member
  Bytes start;          // then: a HostStart

  template <class Archive>
  void serialize(Archive& archive) {
    archive(refusal, start);
  }
};

// What makes a process of this kind unable to work with this one, or "".
std::string difference_to_this(const JoinRequest& request, bool same_processor);

struct JoinOptions {
  std::string address;            // of the job, "10.0.0.1:20000"
  std::string key_file;           // "-": standard input
  int64_t index = -1, size = -1;  // -1: of the engine's variables, if there are any
  double patience = 60;           // seconds to wait for the job's answer
  bool started = false;           // by a command of the client, whose standard input means its life
};

// Index and number of the processes that an engine has started together, by the variables that
// Slurm, PMIx, Open MPI or Kubernetes set. -1 where there are none. Throws InvalidArgument for a
// variable that is not a number.
struct JobIndex {
  int64_t index = -1, size = -1;
};
JobIndex index_of_engine();

// Joins, works as a member until the job ends, and ends this process. Throws what read_key_file()
// and ask_as_guest() throw, and InvalidArgument if the process is refused.
[[noreturn]] void join_job(const JoinOptions& options);

}  // namespace lockstep
