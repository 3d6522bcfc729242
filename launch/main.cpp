#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "launch/commands.h"
#include "launch/output.h"
#include "runtime/base/error.h"
#include "runtime/base/timeout_factor.h"
#include "runtime/elastic/joining_worker.h"
#include "runtime/expert_worker.h"
#include "runtime/rank_setup.h"

// The `ferry` program: one binary for all ranks. Rank 0 runs the command, the others hold experts.

namespace {

using ferry::Cluster;
using ferry::Command;
using ferry::Error;
using ferry::ErrorCode;
using ferry::Options;

constexpr int kExitFailure = 1;
constexpr int kExitBadInput = 2;

/// Bad input is also what this checkpoint, folder or address cannot give: asking again changes nothing.
int exit_code_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kUnimplemented: return kExitBadInput;
    default: return kExitFailure;
  }
}

void complain(int rank, const char* message) {
  const std::string line = ferry::one_line(message);
  if (rank == 0) {
    std::fprintf(stderr, "ferry: error: %s\n", line.c_str());
  } else {
    std::fprintf(stderr, "ferry: rank %d leaves: %s\n", rank, line.c_str());
  }
}

int run_command(const Options& options, Cluster& cluster) {
  if (!cluster.is_coordinator()) return ferry::run_expert_worker(options.engine, cluster);
  switch (options.command) {
    case Command::kServe: return ferry::run_serve(options, cluster);
    case Command::kGenerate: return ferry::run_generate(options, cluster);
    case Command::kDump: return ferry::run_dump(options, cluster);
    case Command::kBench: return ferry::run_bench(options, cluster);
    case Command::kBatch: return ferry::run_batch(options, cluster);
    case Command::kBenchCompare:
    case Command::kQuantize:
    case Command::kInspect:
    case Command::kTokenize:
    case Command::kTrace:
    case Command::kDevices:
    case Command::kPlan:
    case Command::kWorker:
    case Command::kFront:
    case Command::kTop: break;  // have no job
  }
  return kExitFailure;
}

/// Termination signals are for the coordinator, which ends its work and then sends the workers home; a launcher sends them to
/// every rank. Threads that start later have them blocked, too: one that had not, as MPI's, would end the process.
void block_termination_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

/// A failed rank does not wait for others, which may be gone: it leaves and they notice. But as long as the ranks have not
/// begun to work together all leave for the same reason, which the first one says.
int fail(Cluster& cluster, const Error& own) {
  const Error error = ferry::agree_on_failure(cluster, own);
  if (cluster.launched_rank().value == 0 || !cluster.first_tells()) complain(cluster.launched_rank().value, error.what());
  const int exit_code = exit_code_of(error);
  cluster.await_coordinators_end();
  cluster.abandon();
  cluster.exit_if_abandoned(exit_code);
  return exit_code;
}

/// Ends the process past the exit handlers of MPI, which may wait for other ranks.
[[noreturn]] void leave_unjoined(const char* message, int exit_code) {
  complain(ferry::MpiRuntime::launch_rank(), message);
  ferry::exit_now(exit_code);
}

int run(const Options& options) {
  const bool ends_in_order = options.command == Command::kServe || options.command == Command::kBatch;
  if (ends_in_order) ferry::outlive_readers();
  if (ends_in_order || ferry::MpiRuntime::launch_rank() != 0) block_termination_signals();  // before MPI has threads
  std::unique_ptr<Cluster> cluster;
  try {
    cluster = std::make_unique<Cluster>(options.engine);
  } catch (const Error& error) {
    leave_unjoined(error.what(), exit_code_of(error));
  } catch (const std::exception& error) {
    leave_unjoined(("cannot start: " + std::string(error.what())).c_str(), kExitFailure);
  }
  try {
    const int exit_code = run_command(options, *cluster);
    ferry::finish_output();
    cluster->exit_if_abandoned(exit_code);
    return exit_code;
  } catch (const Error& error) {
    return fail(*cluster, error);
  } catch (const std::bad_alloc&) {
    return fail(*cluster, Error(ErrorCode::kResourceExhausted, "out of memory"));
  } catch (const std::exception& error) {
    return fail(*cluster, Error(ErrorCode::kInternal, error.what()));
  }
}

bool has_job(Command command) {
  using enum Command;
  return command == kServe || command == kGenerate || command == kDump || command == kBench || command == kBatch;
}

int run_alone(const Options& options) {
  switch (options.command) {
    case Command::kQuantize: return ferry::run_quantize(options);
    case Command::kInspect: return ferry::run_inspect(options);
    case Command::kTokenize: return ferry::run_tokenize(options);
    case Command::kTrace: return ferry::run_trace(options.trace);
    case Command::kBenchCompare: return ferry::run_bench_compare(options.bench_compare);
    case Command::kDevices: return ferry::run_devices(options.devices, options.engine.cache_folder);
    case Command::kTop: return ferry::run_top(options.top);
    case Command::kPlan: return ferry::run_plan(options);
    case Command::kFront:
      ferry::outlive_readers();
      block_termination_signals();
      return ferry::run_front(options.front);
    case Command::kWorker: block_termination_signals(); return ferry::run_joining_worker(options.engine, options.join);
    case Command::kServe:
    case Command::kGenerate:
    case Command::kDump:
    case Command::kBench:
    case Command::kBatch: break;
  }
  return kExitFailure;
}

/// A command without a job; under mpirun the first rank does it.
int run_without_job(const Options& options) {
  if (ferry::MpiRuntime::launch_rank() != 0) return 0;
  try {
    const int exit_code = run_alone(options);
    ferry::finish_output();
    return exit_code;
  } catch (const Error& error) {
    complain(0, error.what());
    return exit_code_of(error);
  } catch (const std::bad_alloc&) {
    complain(0, "out of memory");
    return kExitFailure;
  } catch (const std::exception& error) {
    complain(0, error.what());
    return kExitFailure;
  }
}

/// Help or version; the exit code.
int print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  try {
    ferry::finish_output();
  } catch (const Error& error) {
    complain(0, error.what());
    return exit_code_of(error);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ferry::prepare_output();
  const ferry::ParseResult parsed = ferry::parse_options(argc, argv);
  if (parsed.options) {
    ferry::set_timeout_factor(parsed.options->timeout_factor);
    return has_job(parsed.options->command) ? run(*parsed.options) : run_without_job(*parsed.options);
  }
  if (parsed.exit_code == 0) return print(parsed.message);
  // Once for each command line of a job, of which the ranks behind a colon have their own.
  if (ferry::MpiRuntime::leads_command()) {
    const int rank = ferry::MpiRuntime::launch_rank();
    const std::string who = rank == 0 ? "" : "rank " + std::to_string(rank) + ": ";
    std::fprintf(stderr, "ferry: error: %s%s\n", who.c_str(), parsed.message.c_str());
  }
  return parsed.exit_code;
}
