#include "apps/lockstep/batch/cluster_cloud.h"

#include "apps/lockstep/command.h"

namespace lockstep::command {

bool act_on_cloud(const std::string& action, const std::string& name, const CloudArguments& a) {
  if (action == "aws-config") {
    AwsClusterOptions options = a.aws;
    if (!name.empty()) options.name = name;
    print(aws_cluster_config(options));
    return true;
  }
  if (action == "jobset") {
    JobSetOptions options = a.job_set;
    if (!name.empty()) options.name = name;
    print(job_set_manifest(options));
    return true;
  }
  return false;
}

void add_cloud_options(Subcommand& sub, CloudArguments& a) {
  AwsClusterOptions& aws = a.aws;
  sub.add_option("--region", aws.region, "aws-config: region, such as eu-central-1")
      .type_name("REGION");
  sub.add_option("--subnet", aws.subnet, "aws-config: subnet of all nodes").type_name("SUBNET");
  sub.add_option("--ssh-key", aws.ssh_key, "aws-config: name of the key pair for logging in")
      .type_name("KEY");
  sub.add_option("--os", aws.os, "aws-config: operating system (default: ubuntu2404)")
      .type_name("OS");
  sub.add_option("--head-instance", aws.head_instance,
                 "aws-config: instance type of the head node (default: c7i.xlarge)")
      .type_name("TYPE");
  sub.add_option("--cpu-instance", aws.cpu_instance,
                 "aws-config: instance type of the queue cpu (default: c7i.8xlarge; \"\": none)")
      .type_name("TYPE");
  sub.add_option("--cpu-nodes", aws.cpu_nodes,
                 "aws-config: maximum number of nodes of the queue cpu (default: 16)")
      .type_name("N");
  sub.add_option("--node-threads", aws.cpu_threads,
                 "aws-config: cores per node of the queue cpu (default: 16)")
      .type_name("N");
  sub.add_option("--gpu-instance", aws.gpu_instance,
                 "aws-config: instance type of the queue gpu (default: no such queue)")
      .type_name("TYPE");
  sub.add_option("--gpu-nodes", aws.gpu_nodes,
                 "aws-config: maximum number of nodes of the queue gpu (default: 4)")
      .type_name("N");
  sub.add_option("--node-gpus", aws.gpus, "aws-config: GPUs per node of the queue gpu (default: 8)")
      .type_name("N");
  sub.add_flag("--spot", aws.spot,
               "aws-config: Spot Instances, which are cheaper and which AWS may reclaim");
  sub.add_flag("--efa", aws.efa,
               "aws-config: Elastic Fabric Adapter between the nodes of the queue gpu");
  sub.add_option("--bucket", aws.bucket, "aws-config: S3 bucket that the nodes may use")
      .type_name("BUCKET");
  sub.add_option("--storage", aws.storage, "aws-config: shared folder by EFS or FSx for Lustre")
      .type_name("efs|fsx");
  JobSetOptions& set = a.job_set;
  sub.add_option("--image", set.image, "jobset: container image with lockstep").type_name("IMAGE");
  sub.add_option("--job", set.job, "jobset: job file in the shared folder (default: job.toml)")
      .type_name("FILE");
  sub.add_option("--claim", set.claim,
                 "jobset: persistent volume claim that becomes the shared folder")
      .type_name("CLAIM");
  sub.add_option("--pods", set.hosts, "jobset: pods that join as hosts (default: 2)")
      .type_name("N");
  sub.add_option("--pod-workers", set.workers, "jobset: workers of each pod (default: 1)")
      .type_name("N");
  sub.add_option("--pod-threads", set.threads, "jobset: threads of each worker (default: 4)")
      .type_name("N");
  sub.add_option("--pod-gpus", set.gpus, "jobset: GPUs of each pod (default: 0)").type_name("N");
  sub.add_option("--user", set.user, "jobset: user ID of the processes (default: 1000)")
      .type_name("N");
  sub.add_option("--port", set.port,
                 "jobset: first of the 100 ports that pods listen at (default: 20000)")
      .type_name("PORT");
  sub.add_option("--node-type", set.node_type,
                 "jobset: instance type of the nodes, so that all processors are alike")
      .type_name("TYPE");
}

}  // namespace lockstep::command
