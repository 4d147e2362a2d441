#include "tests/parallel/network.h"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "tests/parallel/groups.h"

namespace lockstep::testing {
namespace {

void command(const std::string& text) {
  const int status = std::system((text + " > /dev/null 2>&1").c_str());
  if (status != 0) throw Error("[test] failed: " + text);
}

void write(const char* path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text << std::flush)) throw Error(std::string("[test] cannot write ") + path);
}

// Makes a network namespace for this process: as root, or within a user namespace.
void enter_network() {
  if (unshare(CLONE_NEWNET) != 0) {
    const std::string user = std::to_string(getuid()), group = std::to_string(getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) throw Error("[test] no namespace");
    write("/proc/self/setgroups", "deny");
    write("/proc/self/uid_map", "0 " + user + " 1");
    write("/proc/self/gid_map", "0 " + group + " 1");
  }
  command("ip link set lo up");
}

std::string cable_of(int host) { return "cable" + std::to_string(host); }

// Ends together with its parent, so that a killed test leaves no process.
void end_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

// A pipe between two processes, with one end for each after the fork.
class Line {
 public:
  Line() {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends_) != 0) throw Error("[test] no line");
  }
  ~Line() { close(ends_[mine_]); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  void is_child(bool child) {
    mine_ = child ? 1 : 0;
    close(ends_[1 - mine_]);
  }
  void say() const {
    if (::send(ends_[mine_], "x", 1, MSG_NOSIGNAL) != 1) throw Error("[test] no process listens");
  }
  void hear() const {
    pollfd other{ends_[mine_], POLLIN, 0};
    char c = 0;
    if (poll(&other, 1, 20000) != 1 || read(ends_[mine_], &c, 1) != 1) {
      throw Error("[test] no process sends");
    }
  }

 private:
  int ends_[2];
  int mine_ = 0;
};

// Called by the switch process. Starts a host that runs the body when it is on the bridge.
pid_t start_host(int host, const std::function<void(int)>& body) {
  Line line;
  const pid_t child = fork();
  line.is_child(child == 0);
  if (child == 0) {
    end_with_parent();
    int status = 1;
    try {
      if (unshare(CLONE_NEWNET) != 0) throw Error("[test] no namespace for a host");
      line.say();
      line.hear();
      command("ip link set lo up");
      command("ip address add " + address_of(host) + "/24 dev " + cable_of(host));
      command("ip link set " + cable_of(host) + " up");
      body(host);
      status = 0;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "host %d: %s\n", host, e.what());
    }
    _exit(status);
  }
  line.hear();
  const std::string port = "port" + std::to_string(host);
  command("ip link add " + port + " type veth peer name " + cable_of(host) + " netns " +
          std::to_string(child));
  command("ip link set " + port + " master switch up");
  line.say();
  return child;
}

int run_hosts(int hosts, const std::function<void(int)>& body) {
  enter_network();
  // Ports forward immediately, because spanning tree and learning are off.
  command("ip link add switch type bridge forward_delay 0 stp_state 0");
  command("ip link set switch up");
  std::vector<pid_t> children;
  for (int h = 0; h < hosts; ++h) children.push_back(start_host(h, body));
  return failures(children);
}

}  // namespace

std::string address_of(int host) { return "10.77.0." + std::to_string(host + 1); }

int on_network(int hosts, const std::function<void(int)>& body) {
  // The switch is a separate process. Its namespace and the hosts end with it.
  const pid_t child = fork();
  if (child == 0) {
    end_with_parent();
    int failed = 101;
    try {
      failed = run_hosts(hosts, body);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "network: %s\n", e.what());
    }
    _exit(failed);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

// Only asks the system. If networks are allowed but cannot be made, the tests fail.
std::string why_no_network() {
  static const std::string why = [] {
    const pid_t child = fork();
    if (child == 0) {
      const bool made = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
      _exit(made ? 0 : 1);
    }
    return failures({child}) == 0 ? "" : "this user may not make network namespaces here";
  }();
  return why;
}

void pull_cable(int host) { command("ip link set " + cable_of(host) + " down"); }

void shun(int other) { command("ip route add blackhole " + address_of(other)); }

void unshun(int other) { command("ip route del blackhole " + address_of(other)); }

bool has_ipv6() {
  const Descriptor s(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  return s && bind(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

void plug_cable(int host) { command("ip link set " + cable_of(host) + " up"); }

}  // namespace lockstep::testing
