#include "runtime/options/generate_options.h"

#include <CLI/CLI.hpp>

#include "runtime/options/media_options.h"
#include "runtime/options/option_checks.h"
#include "runtime/options/option_kinds.h"
#include "runtime/vision/preprocess.h"

namespace ferry {
namespace {

void add_sampling_options(CLI::App& app, SamplingParams& s) {
  app.add_option("--max-tokens", s.max_tokens, "most tokens to make; default 256")->check(integer_in(1, 1 << 30));
  app.add_option("--temperature", s.temperature, "0 is greedy; default 0")->check(number_in(0.0, 1e6, "0 to 1000000"));
  app.add_option("--top-p", s.top_p, "above 0, at most 1; default 1")->check(number_in(1e-9, 1.0, "above 0, at most 1"));
  app.add_option("--top-k", s.top_k, "0 is off; default 0")->check(integer_in(0, 1 << 30));
  app.add_option("--min-p", s.min_p, "only tokens with at least this share of the likeliest one's probability; default 0")
      ->check(number_in(0.0, 1.0, "0 to 1"));
  app.add_option("--repetition-penalty", s.repetition_penalty,
                 "divides positive logits of tokens of prompt and completion, multiplies others; default 1")
      ->check(number_in(1e-6, 1e6, "0.000001 to 1000000"));
  app.add_option("--presence-penalty", s.presence_penalty, "subtracted from the logits of tokens of the completion; default 0")
      ->check(number_in(-2.0, 2.0, "-2 to 2"));
  app.add_option("--frequency-penalty", s.frequency_penalty, "likewise, times how often the token is in it; default 0")
      ->check(number_in(-2.0, 2.0, "-2 to 2"));
  app.add_option("--seed", s.seed, "of the random numbers; default 0")
      ->check(CLI::Validator(
          [](std::string& text) {
            return parse_number<uint64_t>(text) ? std::string() : complaint(text, "0 to 18446744073709551615");
          },
          ""));
  app.add_option("--stop", s.stop, "a string that ends the text; may be given several times");
  app.add_flag("--ignore-eos", s.ignore_eos, "do not stop at the checkpoint's stop ids");
}

void add_media_files(CLI::App& app, GenerateOptions& o) {
  app.add_option(
         "--image", o.images,
         "a picture (PNG, JPEG, WebP, GIF); may be given several times. It comes before the message of --chat; a --prompt "
         "says where, by <|vision_start|><|image_pad|><|vision_end|>")
      ->group(kMediaGroup);
  app.add_option(
         "--video", o.videos,
         "a folder with the frames of a video, picture files sorted by name; may be given several times: each folder is "
         "a video, and single files are the frames of one more, in their order, behind the folders. Videos come behind "
         "pictures; their place in a --prompt has <|video_pad|>")
      ->group(kMediaGroup);
  app.add_option_function<double>(
         "--fps", [&o](double fps) { o.fps = fps; },
         "frames a second of the videos, which are then sampled as the checkpoint says; default: all frames are looked at")
      ->check(number_in(kLowestFps, kHighestFps, kAllowedFps))
      ->group(kMediaGroup);
}

}  // namespace

void add_generate_options(CLI::App& app, GenerateOptions& o) {
  // No group of CLI11's own: its group is a subcommand named "", and an empty argument would call it again and again.
  const std::string group = "What to complete, exactly one of these";
  app.add_option_function<std::string>(
         "--prompt", [&o](const std::string& text) { o.prompt = text; }, "text to continue")
      ->group(group);
  app.add_option_function<std::string>(
         "--chat", [&o](const std::string& text) { o.chat = text; }, "a user's message to answer")
      ->group(group);
  add_token_ids(app, "--token-ids", o.token_ids, "token ids such as 1,2,3; without a tokenizer ids are printed, too")
      ->group(group);
  add_media_files(app, o);
  using Mode = GenerateOptions::ThinkingMode;
  add_choice<Mode>(
      app, "--thinking", {{"default", Mode::kDefault}, {"on", Mode::kOn}, {"off", Mode::kOff}},
      [&o](Mode mode) { o.thinking = mode; }, "default, on or off: the chat template's thinking block");
  add_sampling_options(app, o.sampling);
  app.add_flag("--json", o.json, "print one JSON object instead of streaming text");
}

std::string check_together(const GenerateOptions& o) {
  const int num_inputs = o.prompt.has_value() + o.chat.has_value() + !o.token_ids.empty();
  if (o.fps && o.videos.empty()) return "--fps is of a video; allowed: together with --video";
  if (num_inputs == 1) return "";
  return "exactly one of --prompt, --chat, --token-ids is required; " + std::to_string(num_inputs) + " were given";
}

}  // namespace ferry
