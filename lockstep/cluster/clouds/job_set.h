// A training as a Kubernetes JobSet: one pod of the client, and pods that join it as its hosts.
// Nothing is created: the text is for `kubectl apply -f`. Functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct JobSetOptions {
  std::string name = "lockstep";  // of the JobSet; its Secret is NAME-key
  std::string image;              // with lockstep in its PATH; required
  std::string job = "job.toml";   // the job file, in the shared folder
  std::string claim;              // the persistent volume claim that is the shared folder; required
  int64_t hosts = 2;              // pods that join
  int64_t workers = 1;            // worker processes of each
  int64_t threads = 4;            // processors of each worker
  int64_t gpus = 0;               // of each pod; 0: the processors compute
  int64_t user = 1000;            // number of the user and group of the processes
  int64_t port = 20000;           // the first of the range of 100 ports that pods listen at
  std::string node_type;          // pods run on nodes of this instance type; "": any
};

// The manifest as YAML (jobset.x-k8s.io/v1alpha2). Throws InvalidArgument for a missing or wrong
// field, which the message names.
std::string job_set_manifest(const JobSetOptions& options);

}  // namespace lockstep
