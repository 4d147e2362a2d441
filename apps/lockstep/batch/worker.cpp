// The subcommand worker.
#include <memory>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/cluster/remote/join.h"

namespace lockstep::command {
namespace {

struct WorkerArguments {
  JoinOptions join;
  std::string new_key;
};

int worker_command(const WorkerArguments& a) {
  if (!a.new_key.empty()) {
    write_key_file(a.new_key, JobKey::fresh());
    return 0;
  }
  if (a.join.address.empty() || a.join.key_file.empty()) {
    throw UsageError("--join and --key-file, or --new-key, are needed",
                     "lockstep worker --help shows examples");
  }
  join_job(a.join);
}

}  // namespace

void add_worker(Commands& commands) {
  auto a = std::make_shared<WorkerArguments>();
  Subcommand sub = commands.add(
      "worker", "Join a training as a host, started by srun, mpirun, Kubernetes, or by hand",
      "The training waits for its hosts with --hosts a:2,b:2 --host-launch 'join FILE' and listens "
      "at the address that host_address says (the loopback if it says none), at the first free "
      "port of LOCKSTEP_PORTS. Each host runs this command with the same key file. Its index is "
      "that of SLURM_PROCID, PMIX_RANK, OMPI_COMM_WORLD_RANK or JOB_COMPLETION_INDEX, or given. "
      "The process works until the training ends, and then ends with exit code 0. A process that "
      "joins too late or twice, or has another build or processor model, is refused with the "
      "reason.\n\n"
      "Each job has a new key file, which only its owner may read. A process with this file can "
      "join the job; other processes cannot.",
      {{"lockstep worker --new-key job.key", "make a key for a job"},
       {"lockstep worker --join 10.0.0.1:20000 --key-file job.key --index 0", "join a training"}},
      [a] { return worker_command(*a); });
  Option join = sub.add_option("--join", a->join.address, "Address and port of the training")
                    .type_name("ADDRESS")
                    .not_empty();
  Option key = sub.add_option("--key-file", a->join.key_file,
                              "File with the key of the job; \"-\": standard input")
                   .type_name("FILE")
                   .not_empty();
  sub.add_option("--index", a->join.index,
                 "Index among the hosts, from 0 (default: from Slurm, MPI or Kubernetes)")
      .type_name("N")
      .range(0, 1'000'000);
  sub.add_option("--size", a->join.size, "Number of hosts (default: from Slurm, MPI or Kubernetes)")
      .type_name("N")
      .range(1, 1'000'000);
  sub.add_option("--patience", a->join.patience,
                 "Seconds to wait for an answer of the training (default: 60)")
      .type_name("SECONDS")
      .not_negative();
  sub.add_option("--new-key", a->new_key, "Write a new key to this file, and do nothing else")
      .type_name("FILE")
      .not_empty()
      .excludes(join)
      .excludes(key);
}

}  // namespace lockstep::command
