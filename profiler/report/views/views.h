#pragma once

#include <vector>

#include "profiler/report/timeline/report_input.h"
#include "profiler/report/views/table.h"

// The views of a capture, each a table. Definitions of the terms: a rank's time in a window is computing (a thread is inside an
// operator), exposed communication (only messages are in flight) or free.

namespace ferry {

Table make_critical_path_view(const ReportInput& input);  // "critical_path": what steps took their time for, on any rank
Table make_run_view(const ReportInput& input);            // "run": one row
Table make_phase_view(const ReportInput& input);          // "phase": prefill, decode, mixed, starved, idle
Table make_draft_view(const ReportInput& input);          // "draft": time for guessing and for wrong guesses
Table make_draft_place_view(const ReportInput& input);    // "draft_place": how many were right, by place
Table make_step_view(const ReportInput& input);           // "step": step x rank
Table make_incident_view(const ReportInput& input);       // "incident": what deaths and moves cost
Table make_worker_view(const ReportInput& input);         // "worker_change": how workers came to stand
Table make_layer_view(const ReportInput& input);          // "layer": layer x part, us per step, by phase
Table make_layer_type_view(const ReportInput& input);     // "layer_type"
Table make_kernel_view(const ReportInput& input);         // "kernel": a typical step of each kind, kernel by kernel
Table make_kernel_layer_view(const ReportInput& input);   // "kernel_layer": kernels of two types of layers side by side
Table make_operator_view(const ReportInput& input);       // "operator": with FLOP, bytes, roofline
Table make_device_view(const ReportInput& input);         // "device": a GPU's time in the steps, by its own clock
Table make_counter_view(const ReportInput& input);        // "counter": what processor and kernel counted, by thread
Table make_energy_view(const ReportInput& input);         // "energy": of hosts, a token
Table make_memory_view(const ReportInput& input);         // "memory": what ranks held
Table make_memory_timeline(const ReportInput& input);     // "memory_timeline": the same over time
Table make_transfer_view(const ReportInput& input);       // "transfer": communication operators
Table make_traffic_view(const ReportInput& input);        // "traffic": source x target
Table make_expert_view(const ReportInput& input);         // "expert": layer x expert tokens
Table make_balance_view(const ReportInput& input);        // "balance": per layer: tokens by rank, balancedness
Table make_hot_expert_view(const ReportInput& input);     // "hot_expert": the joined view
Table make_straggler_view(const ReportInput& input);      // "straggler": votes, lateness, cause
Table make_request_view(const ReportInput& input);        // "request": waterfall
Table make_free_view(const ReportInput& input);           // "free": the longest gaps and their causes
Table make_stack_view(const ReportInput& input);          // "stack": CPU time by function, of sampled stacks
Table make_folded_stack_view(const ReportInput& input);   // "folded_stack": CPU time by stack

/// All of the above, in reading order; that of devices only where a rank has one, those of workers only where one came to stand
/// otherwise, those of counters, memory and stacks only where they were recorded.
std::vector<Table> make_views(const ReportInput& input);

}  // namespace ferry
