#pragma once

#include <cstdint>
#include <span>
#include <string_view>

// What of Ferry reads bytes of strangers, each reader as one function over any bytes. libFuzzer drives them (fuzz_main.cpp,
// built by the preset `fuzz`), and a plain test runs them over corpus/NAME (corpus_test.cpp): seeds, and every input that once
// found something.

namespace ferry::fuzz {

using Input = std::span<const uint8_t>;

/// A reader under test. It returns, or throws Error as the reader's contract has it; anything else (another exception, a
/// failed check, a sanitizer's report) is a finding.
struct Target {
  const char* name;  // also of the folder of its inputs
  void (*run)(Input input);
};

std::span<const Target> all_targets();

inline std::string_view text_of(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

// checkpoint_targets.cpp
void read_json(Input input);
void read_config(Input input);
void read_generation_config(Input input);
void read_index(Input input);
void read_safetensors(Input input);
void read_quantized_matrix(Input input);
void read_tokenizer(Input input);
void read_tokenizer_config(Input input);
void read_chat_template(Input input);

// text_targets.cpp, reply_targets.cpp
void translate_regex(Input input);
void split_text(Input input);
void detokenize(Input input);
void render_chat(Input input);
void parse_reply(Input input);
void read_tools(Input input);
void render_jinja(Input input);

// wire_targets.cpp
void parse_request_message(Input input);
void parse_reply_message(Input input);
void read_assignment_message(Input input);
void parse_handshake(Input input);
void parse_trace_message(Input input);
void decode_capture(Input input);
void parse_command_line(Input input);

// placement_targets.cpp
void read_loads(Input input);
void read_record(Input input);
void read_routing(Input input);
void read_machines(Input input);
void read_bench(Input input);

// archive_targets.cpp
void read_step_day(Input input);
void read_kept_step(Input input);
void read_archive_line(Input input);

// join_targets.cpp, rendezvous_targets.cpp, link_targets.cpp
void read_join_message(Input input);
void forge_join(Input input);
void attack_rendezvous(Input input);
void attack_newcomer(Input input);
void attack_link(Input input);

// vision_targets.cpp
void read_picture(Input input);
void read_vision_config(Input input);
void place_pictures(Input input);

// server_targets.cpp
void judge_http_head(Input input);
void parse_profile_body(Input input);
void claim_trace_folder(Input input);
void take_generate_request(Input input);
void take_vllm_request(Input input);
void count_parsed_bytes(Input input);
void decode_data_url(Input input);
void judge_remote_url(Input input);

// api_targets.cpp
void read_api_body(Input input);
void read_batch_lines(Input input);
void read_message_body(Input input);
void read_responses_body(Input input);
void read_call_traits(Input input);

}  // namespace ferry::fuzz
