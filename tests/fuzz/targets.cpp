#include "tests/fuzz/targets.h"

namespace ferry::fuzz {

std::span<const Target> all_targets() {
  static constexpr Target kTargets[] = {
      {"json", read_json},
      {"config", read_config},
      {"generation_config", read_generation_config},
      {"index", read_index},
      {"safetensors", read_safetensors},
      {"quantized_matrix", read_quantized_matrix},
      {"tokenizer", read_tokenizer},
      {"tokenizer_config", read_tokenizer_config},
      {"chat_template", read_chat_template},
      {"regex", translate_regex},
      {"split", split_text},
      {"detokenizer", detokenize},
      {"chat", render_chat},
      {"reply", parse_reply},
      {"tools", read_tools},
      {"jinja", render_jinja},
      {"picture_png", read_picture},
      {"picture_jpeg", read_picture},
      {"picture_webp", read_picture},
      {"picture_gif", read_picture},
      {"vision_config", read_vision_config},
      {"placeholders", place_pictures},
      {"wire_request", parse_request_message},
      {"wire_reply", parse_reply_message},
      {"handshake", parse_handshake},
      {"trace_message", parse_trace_message},
      {"join_message", read_join_message},
      {"join_forgery", forge_join},
      {"rendezvous", attack_rendezvous},
      {"newcomer", attack_newcomer},
      {"link", attack_link},
      {"capture", decode_capture},
      {"options", parse_command_line},
      {"expert_loads", read_loads},
      {"load_record", read_record},
      {"routing_trace", read_routing},
      {"plan_hosts", read_machines},
      {"http_head", judge_http_head},
      {"profile_body", parse_profile_body},
      {"trace_folder", claim_trace_folder},
      {"generate_request", take_generate_request},
      {"vllm_request", take_vllm_request},
      {"api_body", read_api_body},
      {"batch_line", read_batch_lines},
      {"message_body", read_message_body},
      {"responses_body", read_responses_body},
      {"data_url", decode_data_url},
      {"remote_url", judge_remote_url},
  };
  return kTargets;
}

}  // namespace ferry::fuzz
