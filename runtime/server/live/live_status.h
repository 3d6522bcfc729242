#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ferry {

struct EngineReport;
struct OpenRequestSight;
struct RecentActivity;

/// How a job is at one moment, for whoever watches it: /status.json, the page at / and `ferry top` show this and nothing else.
/// Names of fields are those of the JSON (live_json.h). Counts and seconds are since the start unless said otherwise: two
/// looks give rates.
struct LiveStatus {
  struct Server {
    std::string version, model, architecture, dtype;
    std::string transport;  // between ranks: "local", "sockets", "mpi" or "gloo"
    int32_t ranks = 1;      // the coordinator, and the expert workers that it has now or has lost
    int64_t layers = 0;
    int64_t context_length = 0;  // tokens
    double time = 0;             // seconds since 1970, as the server has it
    double uptime_s = 0;
    std::string complaint;  // why nothing is served; empty while it is
  };
  /// An open request, without a word of what it says.
  struct OpenRequest {
    uint64_t number = 0;
    std::string state;  // request_state_name()
    double age_s = 0;
    int64_t prompt_tokens = 0, cached_tokens = 0, computed_tokens = 0, generated_tokens = 0;
  };
  struct Requests {
    int32_t running = 0, waiting = 0, max_running = 0, max_waiting = 0;  // now; waiting: queued or preempted
    std::map<std::string, int32_t> by_state;                             // now
    std::map<std::string, int64_t> finished;                             // by finish_reason_name()
    int64_t rejected = 0;                                                // since the queue was full
    int64_t preemptions = 0;
    std::vector<OpenRequest> oldest;  // now, of those that are open; not all of many
  };
  struct Tokens {
    int64_t prompt = 0;    // of requests that have their first token
    int64_t cached = 0;    // of these, not computed for them
    int64_t computed = 0;  // of prompts, that steps computed, anew included
    int64_t generated = 0;
  };
  struct Steps {
    int64_t count = 0;
    double seconds = 0;           // all of them, guessing included
    double drafting_seconds = 0;  // of these, guessing
    double wasted_seconds = 0;    // of the rest, for guesses that were wrong
    int64_t max_drafts = 0;       // of a sequence in a step
    int64_t drafts_tried = 0, drafts_right = 0;
    int64_t sequence_steps = 0, sequence_tokens = 0;  // behind prompts: steps, each once a sequence, and what they gave
  };
  /// Of the time just past; all 0 where nothing is recorded (--profile off).
  struct Phase {
    std::string name;  // phase_name()
    int64_t steps = 0, rows = 0, sequences = 0;
    double seconds = 0;
  };
  struct Recent {
    double window_s = 0;
    std::vector<Phase> phases;
    double draft_s = 0;
    double core_wait_s = 0;    // threads of the coordinator were ready and had no core, all of them together
    double not_running_s = 0;  // it was stopped as a whole
  };
  /// An expert worker, one that has gone included until another one has its number. Exchanges are those of the time just past,
  /// as the coordinator sees them.
  struct Rank {
    int32_t rank = 0;
    int64_t exchanges = 0, rows = 0, bytes_out = 0, bytes_in = 0;
    double round_trip_s = 0;    // of all exchanges together
    double wait_s = 0;          // that the coordinator stood still for it
    std::string host, address;  // WorkerHome; empty where that is not known
    std::string state;          // worker_state_name()
    bool lost = false;          // it died or could not be reached any more, and did not leave
    std::string reason;         // of its last change; empty for one that is as it began
    double changed_s = 0;       // when that was: seconds since 1970
  };
  struct MissingWorker {
    int32_t rank = 0;
    std::string state;  // worker_state_name()
    std::string reason;
  };
  /// What became of rows of experts whose workers are late or lost; none of a job without workers.
  struct Workers {
    std::map<std::string, int64_t> by_state;                     // now, by worker_state_name()
    std::vector<MissingWorker> missing;                          // now
    int64_t covered_by_workers = 0, covered_by_coordinator = 0;  // rows
    int64_t kept_bytes = 0;                                      // now, of experts on the coordinator in place of workers
  };
  struct Experts {
    int64_t count = 0;  // of a layer; 0: a dense model
    int64_t per_token = 0;
    double balancedness = 1;  // mean by maximum over ranks of rows; 1 is even
    int64_t touched = 0;      // that had a row, summed over layers and steps
    int64_t layers = 0;       // of steps, that have experts
  };
  struct Transport {
    int64_t layers = 0;  // whose rows travelled
    int64_t bytes_out = 0, bytes_in = 0;
    double wait_s = 0;       // that the coordinator stood still for rows
    double transport_s = 0;  // of that, while no other rank computed what was waited for
  };
  struct Cache {
    int64_t blocks = 0, used_blocks = 0, block_tokens = 0;  // now
    int64_t swap_blocks = 0;                                // now, of preempted requests
    bool has_prefix_cache = false;
    int64_t idle_blocks = 0, snapshots = 0, snapshot_bytes = 0;  // now
    int64_t query_tokens = 0, cached_tokens = 0;
    int64_t evicted_units = 0, evicted_snapshots = 0;
    std::map<std::string, int64_t> misses;  // requests by cache_miss_name()
  };
  /// How steps of a phase compare with those of the day before; ratios are 0 where there are too few to tell.
  struct Drift {
    std::string phase;  // phase_name()
    double median_ratio = 0, p99_ratio = 0;
    bool is_alarmed = false;
  };
  /// What is kept of steps (--trace-sample).
  struct Archive {
    bool is_on = false;            // else nothing is kept
    int64_t steps = 0, bytes = 0;  // now, on disk
    int64_t left_out = 0;          // steps that could not be written
    std::vector<Drift> drift;
  };
  /// How often values fell between bounds; counts has one more, for those above the last bound.
  struct Distribution {
    std::vector<double> bounds;
    std::vector<int64_t> counts;
    double sum = 0;
  };
  struct Seconds {
    Distribution first_token, between_tokens, queue, total;
  };

  Server server;
  Requests requests;
  Tokens tokens;
  Steps steps;
  Recent recent;
  std::vector<Rank> ranks;
  Workers workers;
  Experts experts;
  Transport transport;
  Cache cache;
  Archive archive;
  Seconds seconds;
};

/// What is not the engine's to know.
struct ServerFacts {
  double time = 0;  // seconds since 1970
  double uptime_s = 0;
  std::string complaint;  // why nothing is served; empty while it is
};

LiveStatus make_live_status(const EngineReport& report, const std::vector<OpenRequestSight>& oldest,
                            const RecentActivity& recent, ServerFacts facts);

}  // namespace ferry
